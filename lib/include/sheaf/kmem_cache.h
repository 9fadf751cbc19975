/*
 * Caches of objects of one size, with the interface of the kernel's linux/slab.h (7.0).
 *
 * Functions may be called from any thread at any time, including in signal handlers, unless stated otherwise.
 * Threads need no set-up or clean-up. After fork() both processes continue with their own copies. Functions report
 * errors by returning NULL, false or a negative error number. They change errno only when they return NULL.
 */
#ifndef SHEAF_KMEM_CACHE_H
#define SHEAF_KMEM_CACHE_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct kmem_cache;

/* Request flags. User space can always wait for memory, so GFP_KERNEL and GFP_NOWAIT are the same. */
typedef unsigned int gfp_t;
#define GFP_KERNEL     0u
#define GFP_NOWAIT     0u
#define __GFP_ZERO     1u /* zero the object */
#define __GFP_MEMALLOC 2u /* if there is no other memory, use the cache's reserve: kmem_cache_reserve() */

#define __GFP_THISNODE 4u /* kmem_cache_alloc_node(): use that node only */

/* Cache flags. */
typedef unsigned int slab_flags_t;

/*
 * The memory of a freed object stays with this cache until a grace period is over, though it may hold another object
 * of the cache by then. So RCU readers may still access it. Needs libsheaf-rcu (sheaf/rcu.h); without it
 * kmem_cache_create() fails with ENOTSUP.
 */
#define SLAB_TYPESAFE_BY_RCU 0x2u
#define SLAB_HWCACHE_ALIGN   0x1u /* align objects to cache lines, and small ones to a fraction of a line */

/*
 * Allow the cache to share its memory with other caches of the same size and alignment that have this flag: many
 * small caches then have fewer half-used slabs and sheaves. In return, they have one set of counters, and neither
 * a free to the wrong one of them nor objects that remain when one is destroyed are detected. Without effect with
 * a constructor, a fixed capacity, SLAB_TYPESAFE_BY_RCU or debugging. SLAB_NO_MERGE, the default, takes
 * precedence.
 */
#define SLAB_MERGE    0x10000u
#define SLAB_NO_MERGE 0x20000u

/*
 * Debugging: see docs/debug.md. A cache with any of these flags has no sheaves; other caches are as fast as ever.
 */
#define SLAB_CONSISTENCY_CHECKS 0x0100u /* F: each free also checks both neighbours of the object */
#define SLAB_RED_ZONE           0x0200u /* Z: bytes around each object that must not change */
#define SLAB_POISON             0x0400u /* P: fill new and freed objects; freed ones must not change */
#define SLAB_STORE_USER         0x0800u /* U: record the thread, time and calls of each allocation and free */
#define SLAB_TRACE              0x1000u /* T: print a line for each allocation and free */
#define SLAB_FAILSLAB           0x2000u /* A: allocations may be made to fail */

/* Parameters of a cache besides its name and size. A zeroed field selects the default. */
struct kmem_cache_args {
    unsigned int align;          /* bytes, a power of two up to 4096; 0: 16 for sizes from 16 up, otherwise 8 */
    unsigned int sheaf_capacity; /* objects in a sheaf, fixed, at most 509; 0: depends on size and traffic */
    /*
     * Called once for each object, before it is first handed out; a freed object must be in its constructed state
     * again. Runs without any lock of the allocator.
     */
    void (*ctor)(void *object);
};

/*
 * Create a cache for objects of `size` bytes (1 to 32768). `args` may be NULL. The first 31 bytes of the name are
 * copied. Returns NULL with errno EINVAL for invalid arguments, ENOTSUP for SLAB_TYPESAFE_BY_RCU without
 * libsheaf-rcu, ENOMEM without memory and ENOSPC when there are too many caches. Not for signal handlers.
 */
struct kmem_cache *kmem_cache_create(const char *name, unsigned int size, const struct kmem_cache_args *args,
                                     slab_flags_t flags);

/*
 * Destroy a cache that is no longer used; NULL is allowed. Returns 0. If objects were not freed, reports their
 * number on standard error, keeps the cache and returns -EBUSY. Waits for deferred frees. Not for signal handlers.
 */
int kmem_cache_destroy(struct kmem_cache *cache);

/*
 * Store at most `most` of the further names that a cache has because others were merged with it (SLAB_MERGE), and
 * return how many there are. Destroying the cache under one of its names keeps the others. Not for signal
 * handlers.
 */
unsigned int kmem_cache_aliases(const struct kmem_cache *cache, char (*names)[32], unsigned int most);

/*
 * Allocate an object. Its contents are undefined, or constructed if the cache has a constructor. Returns NULL with
 * errno ENOMEM when there is no memory.
 */
void *kmem_cache_alloc(struct kmem_cache *cache, gfp_t flags);

/* In place of the kernel's number of a memory node: the node on which the thread runs. */
#define NUMA_NO_NODE (-1)

/*
 * Allocate an object from slabs of memory node `node`, or of another node if that one has none (with
 * __GFP_THISNODE: return NULL). Slabs prefer their node: if it has no free page, the kernel may place one
 * elsewhere. For a node without memory, on a machine with one node and with SHEAF_NUMA=off this is
 * kmem_cache_alloc(). It costs as much as that for the thread's own node; for another node it takes a lock or a
 * few atomic operations more.
 */
void *kmem_cache_alloc_node(struct kmem_cache *cache, gfp_t flags, int node);

/* Allocate a zeroed object. Not for caches with a constructor. */
void *kmem_cache_zalloc(struct kmem_cache *cache, gfp_t flags);

/*
 * Free an object. A pointer that is not an object of the cache is reported; unless debugging is to continue, the
 * process is then aborted.
 */
void kmem_cache_free(struct kmem_cache *cache, void *object);

/* Allocate `n` objects. Returns false, with none allocated, when there is no memory. */
bool kmem_cache_alloc_bulk(struct kmem_cache *cache, gfp_t flags, size_t n, void **objects);

/* Free `n` objects. If `cache` is NULL they may belong to different caches. */
void kmem_cache_free_bulk(struct kmem_cache *cache, size_t n, void **objects);

/*
 * Prefilled sheaves: memory for a section of code that must not fail halfway.
 *
 *     sheaf = kmem_cache_prefill_sheaf(cache, GFP_KERNEL, worst_case);   may fail, before anything has happened
 *     ... kmem_cache_alloc_from_sheaf(cache, 0, sheaf) ...               cannot fail, up to worst_case times
 *     kmem_cache_return_sheaf(cache, GFP_KERNEL, sheaf);                 returns the remaining objects
 *
 * This pays off where the worst case is large and few objects are usually needed: prefill and return then move one
 * pointer, whatever the count. The objects are freed with kmem_cache_free(), before or after the sheaf is
 * returned. A sheaf may be passed to another thread, but two threads must not use it at once, and a signal handler
 * must not use that of the code it interrupted; it may use its own. After fork() both processes have their own
 * copy of the sheaf. A cache with prefilled sheaves outstanding cannot be destroyed. Using a sheaf after its
 * return or with another cache is reported, where it can be detected, and aborts the process.
 */
struct slab_sheaf;

/*
 * Get a sheaf of at least `size` objects. Returns NULL with errno ENOMEM, with nothing taken, or EINVAL if `size`
 * is 0. This is cheap up to the cache's capacity. Beyond it ("oversize"), and for caches without sheaves, each
 * object is fetched from its slab. Before the function fails, it drains the sheaves of all CPUs.
 */
struct slab_sheaf *kmem_cache_prefill_sheaf(struct kmem_cache *cache, gfp_t flags, unsigned int size);

/*
 * Allocate an object as kmem_cache_alloc() does; of the flags only __GFP_ZERO matters. Never returns NULL while
 * the sheaf holds objects; afterwards returns NULL with errno ENOMEM even if there is memory. Takes no lock and
 * makes no system call.
 */
void *kmem_cache_alloc_from_sheaf(struct kmem_cache *cache, gfp_t flags, struct slab_sheaf *sheaf);

/* The number of objects left in the sheaf. */
unsigned int kmem_cache_sheaf_size(const struct slab_sheaf *sheaf);

/*
 * Refill the sheaf to at least `size` objects, which may be more than it was prefilled with. *sheaf may change.
 * Returns 0, or -ENOMEM with the contents unchanged.
 */
int kmem_cache_refill_sheaf(struct kmem_cache *cache, gfp_t flags, struct slab_sheaf **sheaf, unsigned int size);

/* Return the sheaf and the objects that it still holds; NULL is allowed. */
void kmem_cache_return_sheaf(struct kmem_cache *cache, gfp_t flags, struct slab_sheaf *sheaf);

/*
 * Set the size of the cache's standing reserve: objects kept for allocations with __GFP_MEMALLOC (single, bulk or
 * prefilled) that find no other memory. A size of 0 ends it. Returns 0, or -ENOMEM with the reserve unchanged.
 * While the reserve is not full, freed objects refill it first, and the cache works without sheaves so that none
 * is missed. An allocation that finds the reserve empty fails at once and does not wait for a free. Each object in
 * the reserve costs 64 bytes more. Two threads must not call this at once for one cache. Not for signal handlers.
 */
int kmem_cache_reserve(struct kmem_cache *cache, unsigned int size);

/* Drain the cache: empty its sheaves and release its empty slabs. Returns 1 if slabs remain, otherwise 0. */
int kmem_cache_shrink(struct kmem_cache *cache);

/*
 * Check all objects of a cache that is debugged: red zones, and the poison of free objects. Returns the number of
 * objects with errors, each of which is reported, or -EINVAL for a cache that is not debugged. May miss objects
 * that other threads allocate or free meanwhile.
 */
int kmem_cache_validate(struct kmem_cache *cache);

/* The object size that was passed to kmem_cache_create(). */
unsigned int kmem_cache_size(const struct kmem_cache *cache);

#ifdef __cplusplus
}
#endif

#endif
