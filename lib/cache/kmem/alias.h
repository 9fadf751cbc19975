/*
 * Aliases: further names of a cache that stands for several similar ones. The caller holds the lock of the setup.
 *
 * Caches are merged only if both were created with SLAB_MERGE. The kernel's default, to merge all similar caches,
 * would lose counters by cache, and the detection of frees to the wrong cache and of objects left at destruction.
 */
#ifndef SHEAF_KMEM_ALIAS_H
#define SHEAF_KMEM_ALIAS_H

#include "cache/kmem_cache.h"

/* Returns a cache that can stand for one with these properties; NULL if there is none. */
struct kmem_cache *alias_find(uint32_t size, uint32_t align, const struct kmem_cache_args *args, slab_flags_t flags);

/* Add a name to the cache, for objects of `size` bytes. Returns false if the table of names is full. */
bool alias_add(struct kmem_cache *cache, const char *name, uint32_t size);

/* Remove the latest name. Returns false if the cache has only its own. */
bool alias_drop(const struct kmem_cache *cache);

#endif
