#include "feature/detour.h"
#include "cache/alloc.h"
#include "feature/debug.h"
#include "feature/debug_spec.h"
#include "feature/fail.h"
#include "feature/harden.h"
#include "feature/quarantine.h"

uint16_t detour_for(const char *name, slab_flags_t flags)
{
    unsigned detour = 0;
    if (unlikely(flags & DEBUG_LOOKS) && debug_start())
        detour |= DETOUR_DEBUG;
    if (unlikely(fail_concerns(name, flags & SLAB_FAILSLAB)))
        detour |= DETOUR_FAIL;
    /* a debugged cache checks its objects itself, but a quarantine delays their reuse, so later writes are
     * found */
    if (unlikely(harden_objects()) && (!(detour & DETOUR_DEBUG) || sheaf_config.harden.quarantine))
        detour |= DETOUR_HARDEN;
    return (uint16_t)detour;
}

static void *detour_present(struct kmem_cache *cache, void *raw, size_t size, size_t align)
{
    if (cache->detour & DETOUR_HARDEN)
        harden_alloc(cache, raw);
    return cache->detour & DETOUR_DEBUG ? debug_present(cache, raw, size, align) : raw;
}

/* Caches of malloc fail in serve_failing() (feature/attach.c) instead, so that all attempts for a request count
 * once. */
static bool fails(const struct kmem_cache *cache, size_t size)
{
    return unlikely(cache->detour & DETOUR_FAIL) && !cache_is_class(cache) && fail_now(cache->name, size);
}

static void *detour_alloc(struct kmem_cache *cache, size_t size, size_t align)
{
    if (fails(cache, size))
        return NULL;
    cache_enter(&cache, slot_counting()); /* if the node is not known now, any sibling will do */
    void *raw = cache_alloc_raw(cache);
    if (unlikely(!raw) && quarantine_waits()) { /* objects in quarantine can be reused */
        quarantine_drain(NULL);
        raw = cache_alloc_raw(cache);
    }
    return likely(raw != NULL) ? detour_present(cache, raw, size, align) : NULL;
}

static void *detour_free(struct kmem_cache *cache, void *object)
{
    if (cache->detour & DETOUR_DEBUG)
        object = debug_free(cache, object);
    return object && cache->detour & DETOUR_HARDEN ? harden_free(cache, object) : object;
}

static size_t detour_usable(const struct kmem_cache *cache, const void *p)
{
    return cache->detour & DETOUR_DEBUG ? debug_size(cache, p) : slab_room(&cache->slab, p);
}

const struct cache_ops detour_ops = {
    .alloc = detour_alloc,
    .present = detour_present,
    .free = detour_free,
    .usable = detour_usable,
    .release_kept = quarantine_drain,
};
