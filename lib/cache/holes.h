/*
 * When free pages inside the slabs of sparse caches are returned to the system (slab/holes.h does it): at the end of
 * a burst, and when a cache has been sparse for a while.
 */
#ifndef SHEAF_CACHE_HOLES_H
#define SHEAF_CACHE_HOLES_H

#include "cache/sparse.h"

/* For a step of decay: return free pages of the cache if it has been sparse for a quarter of the decay time. The
 * takeover lock is held. */
void holes_age_sparse(struct kmem_cache *cache);
static inline void holes_age(struct kmem_cache *cache)
{
    if (unlikely(cache->sparse_since || cache_is_sparse(cache)))
        holes_age_sparse(cache);
}

/*
 * Whether a burst ends: slabs have fallen to a quarter of their most units, and then each time by another quarter.
 * The last frees of a burst may be the program's last calls. Racy: two threads may both find it, or one fall of two
 * be missed.
 */
bool burst_ends(void);

/* Return free pages of all sparse caches now. The takeover lock is held. */
void holes_after_burst(void);

#endif
