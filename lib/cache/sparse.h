/*
 * Sparse caches: those with few of their objects out.
 *
 * A free object that waits in a sheaf or a barn keeps its slab from going back to the region. In a cache whose
 * objects are mostly in use, that costs no more than the object. In a sparse cache each waiting object may pin a slab
 * of its own. Therefore a sparse cache has no barn, and its sheaves shrink with the number of objects out. The thread
 * that frees does all of this, so that what a burst leaves is bounded when its last free returns.
 *
 * A cache is sparse if less than one in SPARSE_SHARE of its objects is out, if its slabs have at least SPARSE_LEAST
 * slices and one in SPARSE_TOTAL of all slices in slabs, and if the heap is not small (SMALL_HEAP).
 */
#ifndef SHEAF_CACHE_SPARSE_H
#define SHEAF_CACHE_SPARSE_H

#include "cache/kmem_cache.h"

#define SPARSE_SHARE   4
#define SPARSE_LEAST   2u
#define SPARSE_TOTAL   256u
#define SPARSE_WAITING 16 /* an end holds at most one in this many of the objects out */

/* A hint, from counts that are read without the lock. Objects in the barn count as free. */
static inline bool cache_is_sparse(const struct kmem_cache *cache)
{
    uint64_t all = read_once(region_stats.slab_slices);
    if (likely(all < SMALL_HEAP))
        return false;
    uint64_t slabs = read_once(cache->slab.slabs), objects = slabs * cache->slab.objects;
    uint64_t slices = slabs * cache->slab.slices;
    uint64_t free = read_once(cache->slab.free) + barn_objects(cache_barn_here(cache));
    return objects * (SPARSE_SHARE - 1) < free * SPARSE_SHARE && slices >= SPARSE_LEAST &&
           slices * SPARSE_TOTAL >= all;
}

/*
 * Free an object to a sparse cache whose push end is full. If the slot's sheaves are larger than they should be,
 * flushes all of them and puts the object into a smaller one. Returns false if the caller should proceed as with any
 * other cache: the sheaves are small enough, or the slot's word is no longer `top`.
 */
bool sparse_free(struct kmem_cache *cache, unsigned slot, uint64_t top, void *object);

#endif
