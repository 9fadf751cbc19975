/* The slow path of a free. */
#ifndef SHEAF_CACHE_FREE_H
#define SHEAF_CACHE_FREE_H

#include "cache/kmem_cache.h"

/* Free an object of the cache after the fast path missed. A double free that is found is reported. Any context. */
void cache_free_slow(struct kmem_cache *cache, void *object);

/* Free a raw object that was already counted as freed: to the reserve if that is short, else to its slab. */
void cache_free_raw(struct kmem_cache *cache, void *object);

#endif
