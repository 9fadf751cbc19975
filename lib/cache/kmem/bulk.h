/*
 * Bulk operations: move many objects of one cache at once, by whole sheaves, and straight from the slabs.
 *
 * Both return the number of objects that they moved, which may be 0; the caller moves the others one by one. No
 * lock is held on entry or exit. Safe in signal handlers.
 */
#ifndef SHEAF_KMEM_BULK_H
#define SHEAF_KMEM_BULK_H

#include "cache/kmem_cache.h"

/* Take up to `want` objects, in the order in which single allocations would return them. */
size_t bulk_take(struct kmem_cache *cache, void **objects, size_t want);

/* Free objects from the front of the array. All `n` must belong to the cache. A double free that is found is
 * reported. */
size_t bulk_free(struct kmem_cache *cache, void *const *objects, size_t n);

#endif
