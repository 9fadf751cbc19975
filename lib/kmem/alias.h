/*
 * Alike caches that are one: its other names. All of it under the lock of the setup.
 *
 * Not by default, as the kernel has it, because it costs what people look for in caches of their own: counters by
 * cache, frees to the wrong cache, and objects left at the end. Both sides must ask for it (SLAB_MERGE).
 */
#ifndef SHEAF_KMEM_ALIAS_H
#define SHEAF_KMEM_ALIAS_H

#include "cache/kmem_cache.h"

/* A cache that may stand for one with these properties; NULL: none. */
struct kmem_cache *alias_find(uint32_t size, uint32_t align, const struct kmem_cache_args *args, slab_flags_t flags);

/* Give it one more name; false when there is no room for names. */
bool alias_add(struct kmem_cache *cache, const char *name, uint32_t size);

/* Take the latest name away; false: the cache has only its own. */
bool alias_drop(const struct kmem_cache *cache);

#endif
