#include "cache/holes.h"
#include "os/clock.h"
#include "slab/holes.h"

#define HOLES_LEAST 16 /* units in the slabs of a cache: 1 MiB */
#define HOLES_AGE   4u /* part of the decay time for which the cache has been sparse (docs/notes/rest.md) */

/* Free objects lose their contents, so they must not hold what a constructor made, what readers may still look at,
 * or debugging patterns. */
static bool may_have_holes(const struct kmem_cache *cache)
{
    return !cache->slab.ctor && !cache->slab.typesafe && !cache->detour && cache_is_sparse(cache);
}

void holes_age_sparse(struct kmem_cache *cache)
{
    uint32_t now = clock_ms() | 1;
    if ((uint64_t)cache->slab.slabs * cache->slab.units < HOLES_LEAST || !may_have_holes(cache))
        cache->sparse_since = 0;
    else if (!cache->sparse_since)
        cache->sparse_since = now;
    else if (now - cache->sparse_since >= sheaf_config.decay_ms / HOLES_AGE)
        slab_holes(&cache->slab);
}

bool burst_ends(void)
{
    static _Atomic uint32_t mark;
    uint32_t units = (uint32_t)read_once(region_stats.slab_units);
    uint32_t below = atomic_load_explicit(&mark, memory_order_relaxed);
    bool falls = units < below && units >= SMALL_HEAP;
    if (falls || units / 4 > below)
        atomic_store_explicit(&mark, falls ? units - units / 4 : units / 4, memory_order_relaxed);
    return falls;
}

void holes_after_burst(void)
{
    for (unsigned i = CACHE_FIRST; i < read_once(cache_top); i++) {
        struct kmem_cache *cache = &caches[i];
        if (!cache_in_use(cache) || !may_have_holes(cache))
            continue;
        slab_shrink(&cache->slab);
        slab_holes(&cache->slab);
        cache_went_slow(cache);
    }
}
