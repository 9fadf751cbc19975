/*
 * Caches of objects of one size, with the kernel's interface (linux/slab.h, 7.0).
 *
 * Every function may be called from any thread at any time, also in a signal handler, except where it says otherwise.
 * None needs a thread to be set up or torn down. After fork() both processes go on with their own copies. Errors are
 * told as NULL, false or a negative error number; errno is left alone but by functions that return NULL.
 */
#ifndef SHEAF_KMEM_CACHE_H
#define SHEAF_KMEM_CACHE_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct kmem_cache;

/* Request flags. User space can always wait for memory, so there is only one question left to answer. */
typedef unsigned int gfp_t;
#define GFP_KERNEL     0u
#define GFP_NOWAIT     0u
#define __GFP_ZERO     1u /* the object is zeroed */
#define __GFP_MEMALLOC 2u /* when there is no other memory, take from the cache's reserve: kmem_cache_reserve() */

#define __GFP_THISNODE 4u /* kmem_cache_alloc_node(): on that node or not at all */

/* Cache flags. */
typedef unsigned int slab_flags_t;
#define SLAB_TYPESAFE_BY_RCU                                                                                         \
    0x2u /* a freed object stays memory of this cache (perhaps another object) until a grace period is over: RCU     \
            readers may look at it and see what it is. Needs libsheaf-rcu, see sheaf/rcu.h; else ENOTSUP */
#define SLAB_HWCACHE_ALIGN 0x1u /* align objects to cache lines, small ones to a fraction of one */

/*
 * May be one with other caches of the same size and alignment that ask for it, too: fewer half-used slabs and
 * sheaves, for many small caches. The price: one set of counters, a free to the wrong one of them is not seen, nor
 * are objects that are left when one of them is destroyed. Without effect with a constructor, a fixed capacity,
 * SLAB_TYPESAFE_BY_RCU or debugging. SLAB_NO_MERGE, which is the default, wins.
 */
#define SLAB_MERGE    0x10000u
#define SLAB_NO_MERGE 0x20000u

/* Debugging: see docs/debug.md. A cache with any of these has no sheaves; all others stay as fast as they are. */
#define SLAB_CONSISTENCY_CHECKS 0x0100u /* F: each free also looks at what lies on both sides of the object */
#define SLAB_RED_ZONE           0x0200u /* Z: bytes before and behind each object that must not change */
#define SLAB_POISON             0x0400u /* P: fresh and freed objects are filled, freed ones must not change */
#define SLAB_STORE_USER         0x0800u /* U: who allocated and who freed: calls, thread, time */
#define SLAB_TRACE              0x1000u /* T: a line for each allocation and free */
#define SLAB_FAILSLAB           0x2000u /* A: allocations are subject to injected failures */

/* What a cache may be given beyond its name and size; zeroed fields mean the default. */
struct kmem_cache_args {
    unsigned int align;          /* bytes, a power of two up to 4096; 0: 8 bytes, 16 for sizes from 16 up */
    unsigned int sheaf_capacity; /* objects in a sheaf, fixed, at most 509; 0: by size, growing with traffic */
    void (*ctor)(void *object);  /* called once for an object before it is first handed out; a freed object must be
                                    in constructed state again. Runs without any lock of the allocator */
};

/*
 * A new cache for objects of `size` bytes (1 to 32768). `args` may be NULL. The name is copied (31 bytes of it).
 * NULL with errno EINVAL for arguments out of range, ENOMEM without memory, ENOSPC when there are too many caches.
 * Not for signal handlers.
 */
struct kmem_cache *kmem_cache_create(const char *name, unsigned int size, const struct kmem_cache_args *args,
                                     slab_flags_t flags);

/*
 * Destroy a cache that nobody uses any more; NULL is allowed. When objects were not freed, says so on standard error,
 * leaves the cache as it is and returns -EBUSY; 0 otherwise. Not for signal handlers.
 */
int kmem_cache_destroy(struct kmem_cache *cache);

/*
 * The further names of a cache that others were merged with (SLAB_MERGE), at most `most` of them into `names`; how
 * many there are. Destroying it under one of its names leaves the others. Not for signal handlers.
 */
unsigned int kmem_cache_aliases(const struct kmem_cache *cache, char (*names)[32], unsigned int most);

/* One object, its contents undefined (constructed, if the cache has a constructor); NULL with errno ENOMEM. */
void *kmem_cache_alloc(struct kmem_cache *cache, gfp_t flags);

/* The kernel's number of a memory node, or this: the one where the thread runs. */
#define NUMA_NO_NODE (-1)

/*
 * One object from slabs of memory node `node`; from another when that has none (with __GFP_THISNODE: NULL). The slabs
 * prefer their node: when it has no page left, the kernel may place one elsewhere. On a node without memory, a
 * machine with one node, and where SHEAF_NUMA switched nodes off, it is kmem_cache_alloc(). On the thread's own node
 * it costs as much as that, on another one lock or a few atomic operations.
 */
void *kmem_cache_alloc_node(struct kmem_cache *cache, gfp_t flags, int node);

/* One zeroed object. Not for caches with a constructor. */
void *kmem_cache_zalloc(struct kmem_cache *cache, gfp_t flags);

/* Give an object back. A pointer that is not one of the cache's objects is reported and ends the process. */
void kmem_cache_free(struct kmem_cache *cache, void *object);

/* `n` objects into `objects`, or none: returns true or false. */
bool kmem_cache_alloc_bulk(struct kmem_cache *cache, gfp_t flags, size_t n, void **objects);

/* Give `n` objects back. With a NULL cache, objects of any caches may be mixed. */
void kmem_cache_free_bulk(struct kmem_cache *cache, size_t n, void **objects);

/*
 * Prefilled sheaves: memory for a stretch of code that must not fail in the middle.
 *
 *     sheaf = kmem_cache_prefill_sheaf(cache, GFP_KERNEL, worst_case);     this may fail, and then nothing has
 * happened
 *     ... kmem_cache_alloc_from_sheaf(cache, 0, sheaf) ...                 these cannot, up to worst_case times
 *     kmem_cache_return_sheaf(cache, GFP_KERNEL, sheaf);                   the rest goes back
 *
 * It pays where the worst case is large and little is needed as a rule: prefill and return then move one pointer,
 * whatever the count. Objects taken are freed with kmem_cache_free(), before or after the sheaf is returned. A sheaf
 * belongs to whom it was given: it may be handed to another thread, but two must not use it at once, nor a signal
 * handler the one of the code that it interrupted (its own it may have). After fork() both processes have the sheaf,
 * each its own copy. A cache with sheaves given out cannot be destroyed. A sheaf that is used after its return, or
 * with another cache, is reported and ends the process where that can be seen.
 */
struct slab_sheaf;

/*
 * A sheaf of at least `size` objects (it may be more), or NULL with errno ENOMEM and nothing taken; EINVAL for a size
 * of 0. Up to the cache's capacity that is cheap, beyond it ("oversize") each object is fetched from its slab; caches
 * without sheaves always do that. Before it fails, the sheaves of all CPUs are emptied for it.
 */
struct slab_sheaf *kmem_cache_prefill_sheaf(struct kmem_cache *cache, gfp_t flags, unsigned int size);

/*
 * One object, as kmem_cache_alloc() gives it: of the flags only __GFP_ZERO matters. Never NULL while the sheaf holds
 * something; then NULL with errno ENOMEM, whatever memory there is. Takes no lock, makes no system call.
 */
void *kmem_cache_alloc_from_sheaf(struct kmem_cache *cache, gfp_t flags, struct slab_sheaf *sheaf);

/* Objects left in the sheaf. */
unsigned int kmem_cache_sheaf_size(const struct slab_sheaf *sheaf);

/*
 * Top the sheaf up to at least `size` objects, which may be more than it was prefilled with. 0, or -ENOMEM: then it
 * holds what it held. *sheaf may change.
 */
int kmem_cache_refill_sheaf(struct kmem_cache *cache, gfp_t flags, struct slab_sheaf **sheaf, unsigned int size);

/* Give the sheaf back with what it still holds; NULL is allowed. */
void kmem_cache_return_sheaf(struct kmem_cache *cache, gfp_t flags, struct slab_sheaf *sheaf);

/*
 * A standing reserve: `size` objects kept aside for allocations with __GFP_MEMALLOC (single, bulk or prefilled) that
 * find no other memory. 0, or -ENOMEM: then the reserve is as it was. A size of 0 ends it. While it is not full,
 * objects that are freed go there first, and the cache does without sheaves so that none is missed. An allocation
 * that finds the reserve empty too fails at once; it does not wait for a free. Each object costs 64 bytes more. Not
 * for two threads at once on one cache, and not for signal handlers.
 */
int kmem_cache_reserve(struct kmem_cache *cache, unsigned int size);

/* Empty all sheaves of the cache and give its empty slabs back. Returns 1 if slabs remain, else 0. */
int kmem_cache_shrink(struct kmem_cache *cache);

/*
 * Look at all objects of a cache that is debugged: red zones, and poison of free objects. How many have something
 * wrong with them, each of which is reported; -EINVAL for a cache that is not debugged. Objects that other threads
 * allocate or free meanwhile may be left out.
 */
int kmem_cache_validate(struct kmem_cache *cache);

/* The size that the cache was created with, in bytes. */
unsigned int kmem_cache_size(const struct kmem_cache *cache);

#ifdef __cplusplus
}
#endif

#endif
