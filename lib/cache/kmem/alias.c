#include "cache/kmem/alias.h"
#include "cache/remote.h"

#include <string.h>

#define ALIASES     512
#define SLACK_BELOW 8 /* an object may waste fewer bytes than this, as in the kernel */

static struct alias {
    char name[32];
    uint16_t number; /* of the cache; 0: not in use */
} aliases[ALIASES];
static unsigned alias_top; /* entries from here up were never used */

static bool may_merge(const struct kmem_cache_args *args, slab_flags_t flags)
{
    const slab_flags_t alone = ~(slab_flags_t)(SLAB_MERGE | SLAB_HWCACHE_ALIGN);
    return flags & SLAB_MERGE && !(flags & alone) && !(args && (args->ctor || args->sheaf_capacity));
}

struct kmem_cache *alias_find(uint32_t size, uint32_t align, const struct kmem_cache_args *args, slab_flags_t flags)
{
    if (!may_merge(args, flags))
        return NULL;
    for (unsigned i = read_once(cache_top); i-- > CACHE_USERS;) { /* the newest first */
        struct kmem_cache *cache = cache_at(i);
        if (cache_in_use(cache) && cache->flags & SLAB_MERGE && may_merge(NULL, cache->flags) && !cache->slab.ctor &&
            !cache->capacity_fixed && cache->slab.size >= round_up(size, align) &&
            cache->slab.size - round_up(size, align) < SLACK_BELOW && cache->align % align == 0)
            return cache;
    }
    return NULL;
}

bool alias_add(struct kmem_cache *cache, const char *name, uint32_t size)
{
    unsigned i = 0;
    while (i < ALIASES && aliases[i].number)
        i++;
    if (i == ALIASES)
        return false;
    strncpy(aliases[i].name, name, sizeof(aliases[i].name) - 1);
    aliases[i].number = cache->number;
    if (alias_top <= i)
        alias_top = i + 1;
    if (cache->object_size < size) /* what __GFP_ZERO zeroes */
        write_once(cache->object_size, size);
    return true;
}

bool alias_drop(const struct kmem_cache *cache)
{
    for (unsigned i = alias_top; i-- > 0;)
        if (aliases[i].number == cache->number) {
            memset(&aliases[i], 0, sizeof(aliases[i]));
            return true;
        }
    return false;
}

sheaf_export unsigned kmem_cache_aliases(const struct kmem_cache *cache, char (*names)[32], unsigned most)
{
    unsigned n = 0;
    if (!lock_acquire(lock_of(LOCK_SETUP)))
        return 0;
    for (unsigned i = 0; i < alias_top; i++) {
        if (aliases[i].number != cache->number)
            continue;
        if (n < most)
            memcpy(names[n], aliases[i].name, sizeof(aliases[i].name));
        n++;
    }
    lock_release(lock_of(LOCK_SETUP));
    return n;
}
