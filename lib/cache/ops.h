/*
 * What a feature changes in the cold paths of one cache: one table of operations per cache.
 *
 * The core (this folder) calls each entry where its comment says and knows no feature by name. A feature
 * (lib/diagnostics/feature, lib/cache/node, lib/cache/kmem/reserve.c) fills a table with the entries that it needs
 * and attaches it to a cache with cache_attach(): from hooks.attach_features while the cache is being set up, or
 * later. Features never share an entry. A cache without features has no table, so that the core tests one pointer.
 *
 * The operations are called with no lock held, or with the remote drain lock alone (by drains and decay). All may be
 * called in signal handlers.
 */
#ifndef SHEAF_CACHE_OPS_H
#define SHEAF_CACHE_OPS_H

#include "platform/os/compiler.h"

struct barn;
struct kmem_cache;
struct sheaf;

struct cache_ops {
    /* ---- objects, one by one: entries of instrumented caches (struct kmem_cache, `instruments`) ---- */

    /* Allocate for a request of `size` bytes, at most the object size, aligned to the larger of `align` (a power of
     * two) and the cache's alignment. Returns NULL if there is no memory. */
    void *(*alloc)(struct kmem_cache *cache, size_t size, size_t align);

    /* Make the user's object from a raw one. It cannot fail: prefilled sheaves and the reserve are promises. */
    void *(*present)(struct kmem_cache *cache, void *raw, size_t size, size_t align);

    /* Take back the user's object. Returns the raw object that is free now, which may be an older one, or NULL. */
    void *(*free)(struct kmem_cache *cache, void *object);

    /* Bytes that the user may use at p. */
    size_t (*usable)(const struct kmem_cache *cache, const void *p);

    /* Free the objects of the cache that the program has freed and the feature has kept back. */
    void (*release_kept)(struct kmem_cache *cache);

    /* ---- before malloc tries its classes ---- */

    /* Serve or refuse a request of n bytes. Returns true if *p is the result; NULL is then a failure. */
    bool (*serve)(struct kmem_cache *cache, size_t n, size_t align, void **p);

    /* Called when `pops` fast allocations have been added to the counters. */
    void (*popped)(uint64_t pops);

    /* ---- sampling (diagnostics/profile/object.c), for caches of malloc ---- */

    /* Serve a request that missed the fast path with a sampled object. Returns NULL if the cache is to serve it. */
    void *(*sample)(struct kmem_cache *cache, size_t n, size_t align);

    /* Called when n allocations on the slot have been added to the counters, fast or slow ones. */
    void (*counted)(const struct kmem_cache *cache, unsigned slot, uint32_t n);

    /* The number of fast allocations on the slot, from the last call of `counted` on, until one is to take the slow
     * path; UINT32_MAX: any number. Sheaves are attached accordingly. More may happen where there is no memory, and
     * after a remote drain. */
    uint32_t (*limit)(const struct kmem_cache *cache, unsigned slot);

    /* ---- memory nodes ---- */

    /* Replace *cache by the sibling from which a thread on the slot allocates. Returns false if the slot's node is
     * not known now; the caller tries again. */
    bool (*enter)(struct kmem_cache **cache, unsigned slot);

    /* Returns an object to use instead of filling the slot, or NULL. */
    void *(*before_refill)(struct kmem_cache *cache, unsigned slot);

    /* Returns an object from elsewhere when this cache has no memory, or NULL. */
    void *(*alloc_elsewhere)(struct kmem_cache *cache, unsigned slot);

    /* Whether the slot must not hold sheaves of this cache. */
    bool (*is_far)(const struct kmem_cache *cache, unsigned slot);

    /* Collect an object that was freed on a far slot. Returns false if the caller must free it without a sheaf. */
    bool (*free_far)(struct kmem_cache *cache, unsigned slot, void *object);

    /* Send the sheaf that a far slot has collected to the cache's own node. */
    void (*send_home)(struct kmem_cache *cache, unsigned slot, struct sheaf *collected);

    /* The barn that a thread on the slot uses. */
    struct barn *(*barn)(const struct kmem_cache *cache, unsigned slot);

    /* ---- the standing reserve ---- */

    /* Whether the reserve lacks objects. While it does, no sheaf is attached to a slot, so that each free reaches
     * cache_free_raw(). */
    bool (*is_short)(const struct kmem_cache *cache);

    /* Put a raw free object into the reserve. Returns false if the reserve is full. A wrong free that is found is
     * reported. */
    bool (*absorb)(struct kmem_cache *cache, void *object);

    /* Put one object from the slabs into the reserve. Returns false if the reserve is full or there is no
     * memory. */
    bool (*top_up)(struct kmem_cache *cache);
};

/*
 * Attach the entries of `ops` that are not NULL. Two threads that set up the same cache may do so at once: they
 * write the same values.
 */
void cache_attach(struct kmem_cache *cache, const struct cache_ops *ops);

/* The entry, or NULL. A feature may be attached to a cache that is in use, so an entry may appear at any time, and
 * the entries of one feature in any order. The table is loaded once, because the pointer becomes NULL when the cache
 * is destroyed. */
#define cache_op(cache, entry)                                                                                       \
    __extension__({                                                                                                  \
        const struct cache_ops *ops_ = read_once((cache)->ops);                                                      \
        unlikely(ops_ != NULL) ? read_once(ops_->entry) : NULL;                                                      \
    })

#endif
