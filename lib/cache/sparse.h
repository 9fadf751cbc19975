/*
 * Caches of which little is out, and what may wait in barns.
 *
 * A free object that waits in a sheaf or a barn keeps its slab from going back. Where the program uses most of a
 * cache's objects, that costs no more than the object. Where it uses few, each object that waits may pin a slab of
 * its own. So a sparse cache has no barn, and its sheaves shrink with the number of objects out. All of this is done
 * by the thread that frees, so that what a burst leaves is bounded when its last free returns.
 */
#ifndef SHEAF_CACHE_SPARSE_H
#define SHEAF_CACHE_SPARSE_H

#include "cache/kmem_cache.h"

#define SPARSE_SHARE                                                                                                 \
    4 /* a cache is sparse if less than one in so many of its objects is out, in a heap that is not small, */
#define SPARSE_LEAST   2u   /* if the cache's own slabs have so many, */
#define SPARSE_TOTAL   256u /* and one in so many of all */
#define SPARSE_WAITING 16   /* of the objects out of a sparse cache's slabs, one in so many may wait at an end */

/* A hint, from counts that are read without the lock. What waits in the barn here is as good as free. */
static inline bool cache_is_sparse(const struct kmem_cache *cache)
{
    uint64_t all = read_once(region_stats.slab_units);
    if (likely(all < SMALL_HEAP))
        return false;
    uint64_t slabs = read_once(cache->slab.slabs), objects = slabs * cache->slab.objects;
    uint64_t units = slabs * cache->slab.units;
    uint64_t free = read_once(cache->slab.free) + barn_objects(cache_barn_here(cache));
    return objects * (SPARSE_SHARE - 1) < free * SPARSE_SHARE && units >= SPARSE_LEAST && units * SPARSE_TOTAL >= all;
}

/*
 * A free whose push end is full, to a cache that is sparse. Where the slot's sheaves are larger than they should be,
 * gives all they hold to the slabs, and the object to a smaller one. Returns false when the caller is to go on as in
 * any other cache: the sheaves are small enough, or the slot's word is not `top` any more.
 */
bool sparse_free(struct kmem_cache *cache, unsigned slot, uint64_t top, void *object);

/* Flush a few sheaves of the barn. */
void sparse_drain(struct kmem_cache *cache, unsigned slot, struct barn *barn);

/* In a step of decay: give back free pages inside slabs if the cache has been sparse for a while. The lock of
 * takeovers is held. */
void sparse_age(struct kmem_cache *cache);

/*
 * Count the bytes of objects that went from a slot to a barn, or to slabs because the barn refused them. Now and
 * then, sparse_look() flushes what all barns hold beyond their bound, and gives back pages where a burst ends.
 */
#define LOOK_SHIFT 19 /* each 512 KiB */
void sparse_look(void);
static inline void barns_traffic(unsigned slot, uint64_t bytes)
{
    uint64_t *traffic = &slot_head(slot)->barn_traffic; /* racy on purpose, as slow_calls */
    uint64_t before = read_once(*traffic), now = before + bytes;
    write_once(*traffic, now);
    if (unlikely(before >> LOOK_SHIFT != now >> LOOK_SHIFT))
        sparse_look();
}

#endif
