/*
 * The standing reserve of a cache: objects kept for allocations with __GFP_MEMALLOC that find no other memory.
 *
 * Each object lies in a sheaf of its own, its carrier. A carrier is on `filled`, on `empty`, or detached by the
 * thread that moves its object. The number of carriers is the size of the reserve, so putting an object back needs
 * no memory. The reserve is short while there are carriers on `empty`; slow paths then attach no sheaves, and
 * every free reaches the reserve.
 */
#ifndef SHEAF_KMEM_RESERVE_H
#define SHEAF_KMEM_RESERVE_H

#include "cache/kmem_cache.h"

/* Take an object after all other memory was exhausted. Returns NULL if the reserve is empty too. Any context, no lock
 * held. */
void *reserve_take(struct kmem_cache *cache);

/* The number of objects that the reserve is to hold. */
uint32_t reserve_size(const struct kmem_cache *cache);

/* The next cache with this number starts without a reserve. The cache is empty, and the locks of setup and of
 * remote drains are held. */
void reserve_forget(const struct kmem_cache *cache);

/* Visit the carriers of all caches, for the leak scan. */
void reserve_each(sheaf_visitor *visit, void *with);

#endif
