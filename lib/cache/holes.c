#include "cache/holes.h"
#include "platform/os/clock.h"
#include "memory/slab/holes.h"

#define HOLES_LEAST 16 /* slices in the slabs of a cache: 1 MiB */
#define HOLES_AGE   4u /* part of the decay time for which a cache must have been sparse (docs/design-notes.md) */

/* Free objects lose their contents, so they must not hold what a constructor made, what RCU readers may still
 * read, or patterns of debugging or hardening. */
static bool may_have_holes(const struct kmem_cache *cache)
{
    return !cache->slab.ctor && !cache->slab.typesafe && !cache->instruments && cache_is_sparse(cache);
}

void holes_age_sparse(struct kmem_cache *cache)
{
    uint32_t now = clock_ms() | 1;
    if ((uint64_t)cache->slab.slabs * cache->slab.slices < HOLES_LEAST || !may_have_holes(cache))
        cache->sparse_since = 0;
    else if (!cache->sparse_since)
        cache->sparse_since = now;
    else if (now - cache->sparse_since >= sheaf_config.decay_ms / HOLES_AGE)
        slab_holes(&cache->slab);
}

void holes_now(struct kmem_cache *cache)
{
    if (may_have_holes(cache))
        slab_holes(&cache->slab);
}
