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
#define GFP_KERNEL 0u
#define GFP_NOWAIT 0u
#define __GFP_ZERO 1u /* the object is zeroed */

/* Cache flags. */
typedef unsigned int slab_flags_t;
#define SLAB_HWCACHE_ALIGN 0x1u /* align objects to cache lines, small ones to a fraction of one */

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

/* One object, its contents undefined (constructed, if the cache has a constructor); NULL with errno ENOMEM. */
void *kmem_cache_alloc(struct kmem_cache *cache, gfp_t flags);

/* One zeroed object. Not for caches with a constructor. */
void *kmem_cache_zalloc(struct kmem_cache *cache, gfp_t flags);

/* Give an object back. A pointer that is not one of the cache's objects is reported and ends the process. */
void kmem_cache_free(struct kmem_cache *cache, void *object);

/* `n` objects into `objects`, or none: returns true or false. */
bool kmem_cache_alloc_bulk(struct kmem_cache *cache, gfp_t flags, size_t n, void **objects);

/* Give `n` objects back. With a NULL cache, objects of any caches may be mixed. */
void kmem_cache_free_bulk(struct kmem_cache *cache, size_t n, void **objects);

/* Empty all sheaves of the cache and give its empty slabs back. Returns 1 if slabs remain, else 0. */
int kmem_cache_shrink(struct kmem_cache *cache);

/* The size that the cache was created with, in bytes. */
unsigned int kmem_cache_size(const struct kmem_cache *cache);

#ifdef __cplusplus
}
#endif

#endif
