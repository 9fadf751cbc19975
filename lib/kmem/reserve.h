/*
 * The standing reserve of a cache: objects kept aside for allocations that find no other memory.
 *
 * Each object lies in a sheaf of its own, its carrier. A carrier is on `filled` or on `empty`, or in the hands of who
 * moves an object; there are as many as the reserve is to hold, so putting one back needs no memory. The reserve is
 * short while `empty` has any. Then the cache's slow paths install no sheaves, and every free comes by here.
 */
#ifndef SHEAF_KMEM_RESERVE_H
#define SHEAF_KMEM_RESERVE_H

#include "slot/sheaf.h"

struct kmem_cache;

struct reserve {
    sheaf_stack filled, empty;
    _Atomic uint32_t objects; /* in it now */
    _Atomic uint32_t size;    /* carriers: as many objects as it is to hold */
};

/* Whether it could take an object. One load; for slow paths. */
static inline bool reserve_short(const struct reserve *reserve)
{
    return (uint32_t)atomic_load_explicit(&reserve->empty, memory_order_relaxed) != 0;
}

static inline uint32_t reserve_objects(const struct reserve *reserve)
{
    return atomic_load_explicit(&reserve->objects, memory_order_relaxed);
}

/* An object, after all else found none; NULL when the reserve is empty too. Any context, no lock held. */
void *reserve_take(struct kmem_cache *cache);

/* Put an object that is free now into the reserve; false when it is full. Any context. */
bool reserve_put(struct kmem_cache *cache, void *object);

/* Put an object from the slabs into the reserve; false when it is full or the slabs have none. Any context, no lock
 * held. */
bool reserve_top_up(struct kmem_cache *cache);

#endif
