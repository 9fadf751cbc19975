#include "cache/decay.h"
#include "cache/deferred/rcu.h"
#include "cache/kmem/alias.h"
#include "cache/kmem/reserve.h"
#include "cache/node/node.h"
#include "platform/os/message.h"
#include "process/start.h"
#include "platform/os/hooks.h"
#include "diagnostics/feature/debug_spec.h"

#include <errno.h>

/* Creation, shrinking and destruction of caches. */

static uint32_t alignment_for(unsigned size, const struct kmem_cache_args *args, slab_flags_t flags)
{
    uint32_t align = size < 16 ? 8 : 16;
    if (args && args->align > align)
        align = args->align;
    if (flags & SLAB_HWCACHE_ALIGN) {
        uint32_t line = 64;
        while (line / 2 >= size)
            line /= 2;
        align = line > align ? line : align;
    }
    return align;
}

static unsigned find_number(void)
{
    for (unsigned i = CACHE_USERS; i < node_stride; i++)
        if (!cache_in_use(cache_at(i)))
            return i;
    for (unsigned i = node_stride; i < CACHE_MAX; i++) /* numbers in gaps, for caches without siblings */
        if (cache_gap(i % node_stride) && !cache_in_use(cache_at(i)))
            return i;
    return 0;
}

static bool is_valid(const char *name, unsigned size, const struct kmem_cache_args *args)
{
    if (!name || !size || size > OBJECT_MOST)
        return false;
    if (args && args->align && (!is_power_of_two(args->align) || args->align > 4096))
        return false;
    return !args || args->sheaf_capacity <= sheaf_capacity_of(SHEAF_ORDER_MAX);
}

#define CREATE_FLAGS (SLAB_HWCACHE_ALIGN | SLAB_TYPESAFE_BY_RCU | SLAB_MERGE | SLAB_NO_MERGE | DEBUG_FLAGS)

/* The setup lock is held. Returns NULL if there are too many caches. */
static struct kmem_cache *find_or_setup(const char *name, uint32_t size, uint32_t align,
                                        const struct kmem_cache_args *args, slab_flags_t flags)
{
    struct kmem_cache *alike = alias_find(size, align, args, flags);
    if (alike && alias_add(alike, name, size))
        return alike;
    unsigned number = find_number();
    if (!number || !cache_reach(number))
        return NULL;
    cache_setup(number, (struct cache_shape){.name = name,
                                             .object_size = size,
                                             .size = (uint32_t)round_up(size, align),
                                             .align = align,
                                             .args = args,
                                             .flags = flags});
    for (unsigned k = 1; k < cache_siblings(cache_at(number)); k++)
        node_sibling(cache_at(number), k);
    return cache_at(number);
}

sheaf_export struct kmem_cache *kmem_cache_create(const char *name, unsigned size, const struct kmem_cache_args *args,
                                                  slab_flags_t flags)
{
    if (!is_valid(name, size, args) || flags & ~CREATE_FLAGS) {
        errno = EINVAL;
        return NULL;
    }
    if (flags & SLAB_TYPESAFE_BY_RCU && !hooks.rcu_kick) {
        errno = ENOTSUP; /* without libsheaf-rcu no grace period ever ends */
        return NULL;
    }
    if (!cache_layer_init() || !lock_acquire(lock_of(LOCK_SETUP))) {
        errno = ENOMEM;
        return NULL;
    }
    struct kmem_cache *cache = find_or_setup(name, size, alignment_for(size, args, flags), args, flags);
    lock_release(lock_of(LOCK_SETUP));
    if (!cache)
        errno = ENOSPC;
    else if (flags & SLAB_TYPESAFE_BY_RCU)
        hooks.rcu_start(); /* slabs are released in contexts where no thread may be started */
    return cache;
}

static void report_left(const struct kmem_cache *cache, uint64_t left)
{
    struct message m = {.length = 0};
    message_text(&m, "sheaf: cache ");
    message_text(&m, cache->name);
    message_text(&m, " not destroyed: ");
    message_number(&m, left);
    message_text(&m, " objects were not freed");
    message_write(&m);
}

/* The remote drain lock keeps out decay, trims and forks, which visit all caches. */
static bool destroy_locked(struct kmem_cache *cache, uint64_t *left)
{
    uint32_t slabs = 0;
    unsigned siblings = cache_siblings(cache);
    *left = 0;
    for (unsigned k = 0; k < siblings; k++) {
        cache_drain_locked(cache_sibling(cache, k));
        *left += slab_out(&cache_sibling(cache, k)->slab);
        slabs += cache_sibling(cache, k)->slab.slabs;
    }
    if (*left || slabs)
        return false;
    /* the home sibling last: the others are found by it */
    for (unsigned k = siblings; k--;) {
        struct kmem_cache *sibling = cache_sibling(cache, k);
        if (!lock_acquire(sibling->slab.lock))
            return false;
        reserve_forget(sibling);
        cache_forget(sibling);
        lock_release(sibling->slab.lock);
    }
    return true;
}

/* Drops the latest of several names; the cache stays. Returns false if it has only one. */
static bool drop_name(struct kmem_cache *cache)
{
    if (!(cache->flags & SLAB_MERGE) || !lock_acquire(lock_of(LOCK_SETUP)))
        return false;
    bool dropped = alias_drop(cache);
    lock_release(lock_of(LOCK_SETUP));
    return dropped;
}

sheaf_export int kmem_cache_destroy(struct kmem_cache *cache)
{
    if (!cache || drop_name(cache))
        return 0;
    if (hooks.rcu_barrier_on)
        hooks.rcu_barrier_on(cache);
    if (reserve_size(cache)) {
        cache_drain(cache);
        if (slab_out(&cache->slab) == atomic_load(&cache->reserved)) /* all objects left are in the reserve */
            kmem_cache_reserve(cache, 0);
    }
    bool done = false;
    uint64_t left = 0;
    if (!lock_acquire(lock_of(LOCK_SETUP)))
        return -EBUSY;
    if (lock_acquire(lock_of(LOCK_DRAIN))) {
        done = destroy_locked(cache, &left);
        lock_release(lock_of(LOCK_DRAIN));
    }
    lock_release(lock_of(LOCK_SETUP));
    if (left)
        report_left(cache, left);
    return done ? 0 : -EBUSY;
}

sheaf_export int kmem_cache_shrink(struct kmem_cache *cache)
{
    bool slabs = false;
    for (unsigned k = 0; k < cache_siblings(cache); k++) {
        cache_drain(cache_sibling(cache, k));
        slabs |= cache_sibling(cache, k)->slab.slabs != 0;
    }
    region_purge(false);
    return slabs;
}

sheaf_export unsigned kmem_cache_size(const struct kmem_cache *cache)
{
    return cache->object_size;
}
