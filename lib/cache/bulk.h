/*
 * Bulks: many objects of one cache at once, by whole sheaves and straight from and to the slabs.
 *
 * Both do what they can without a fallback and say how much that was; the caller does the rest one by one. No lock is
 * held on entry or exit; safe in signal handlers.
 */
#ifndef SHEAF_CACHE_BULK_H
#define SHEAF_CACHE_BULK_H

#include "cache/kmem_cache.h"

/* Up to `want` objects, in the order in which single allocations would come. */
size_t bulk_take(struct kmem_cache *cache, void **objects, size_t want);

/* The first so many of `n` objects were taken back. All of them belong to the cache. */
size_t bulk_give(struct kmem_cache *cache, void *const *objects, size_t n);

#endif
