/* Decides when free pages inside the slabs of sparse caches are returned to the system by memory/slab/holes.h: at the
 * end of a burst, and when a cache has been sparse for a while. */
#ifndef SHEAF_CACHE_HOLES_H
#define SHEAF_CACHE_HOLES_H

#include "cache/sparse.h"

/* For a step of decay: return free pages of the cache if it has been sparse for a quarter of the decay time. The
 * remote drain lock is held. */
void holes_age_sparse(struct kmem_cache *cache);
static inline void holes_age(struct kmem_cache *cache)
{
    if (unlikely(cache->sparse_since || cache_is_sparse(cache)))
        holes_age_sparse(cache);
}

/* Return free pages of the cache now if it is sparse. The remote drain lock is held. */
void holes_now(struct kmem_cache *cache);

#endif
