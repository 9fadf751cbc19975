/* The slow path of an allocation. */
#ifndef SHEAF_CACHE_ALLOC_H
#define SHEAF_CACHE_ALLOC_H

#include "cache/kmem_cache.h"

/*
 * Allocate an object after the fast path missed. Returns NULL if there is no memory, or in a signal handler that
 * interrupted the holder of the cache's lock; errno is untouched. Any context.
 */
void *cache_alloc_slow(struct kmem_cache *cache);

/* Allocate a raw object without a sheaf, for features that handle each object. Returns NULL as above. */
void *cache_alloc_raw(struct kmem_cache *cache);

#endif
