/*
 * Detours: what stands between a cache and its user where a cache is debugged, hardened, or made to fail.
 *
 * A cache with a detour has no sheaves (detour != 0 implies capacity == 0), so that its slots' words stay 0 for ever,
 * each of its operations goes the slow way and comes by here, and no other cache notices. Below the detour objects
 * are *raw*: slabs, prefilled sheaves and the standing reserve hold raw objects, of slab.size bytes. What the user
 * sees is made of a raw object by detour_present() and turned back by detour_free(); the two need not begin at the
 * same address.
 *
 * No lock is held on entry or exit. All may be called in signal handlers.
 */
#ifndef SHEAF_FEATURE_DETOUR_H
#define SHEAF_FEATURE_DETOUR_H

#include "cache/kmem_cache.h"

enum detour {
    DETOUR_DEBUG = 1,  /* feature/debug.h */
    DETOUR_HARDEN = 2, /* freed objects wait, are zeroed, ... */
    DETOUR_FAIL = 4,   /* allocations fail when that is asked for */
};

/* Which detours a cache of that name takes, by its flags (debug_flags()) and the options. */
uint16_t detour_for(const char *name, slab_flags_t flags);

/* One object for a request of `size` bytes, at most the cache's object size, aligned to `align` (a power of two) or
 * as the cache's objects are, whatever is more. NULL: no memory. */
void *detour_alloc(struct kmem_cache *cache, size_t size, size_t align);

/* The user's object made of a raw one. It cannot fail: what comes from a prefilled sheaf or the reserve is promised.
 */
void *detour_present(struct kmem_cache *cache, void *raw, size_t size, size_t align);

/* The raw object that is to be free now: that of `object`, another that waited longer, or NULL: none. */
void *detour_free(struct kmem_cache *cache, void *object);

/* Bytes at p that the user may use. */
size_t detour_size(const struct kmem_cache *cache, const void *p);

#endif
