/*
 * malloc on size classes and large blocks. Functions that return NULL set errno to ENOMEM; frees leave errno
 * alone. Everything may be called from any thread and in signal handlers.
 */
#ifndef SHEAF_MALLOC_MALLOC_H
#define SHEAF_MALLOC_MALLOC_H

#include "platform/os/compiler.h"

/* Set up the allocator unless that is done. Returns false when the system grants no memory, and where Sheaf steps
 * aside (sheaf_steps_aside() in platform/config/config.h). */
bool malloc_init(void);

/* Where Sheaf steps aside, the memory comes from the malloc that serves in its place. */
void *malloc_missed(size_t n);

/* The same for callers that must not get another malloc's memory: returns NULL then. */
void *malloc_own(size_t n);

/*
 * Tries the rseq sections that malloc_try() did not try. Returns NULL if they miss; the caller then calls
 * malloc_missed(). Leaves errno alone.
 */
void *malloc_try_others(size_t n);
void free_missed(void *p);
void *malloc_zeroed(size_t n);

/* realloc where p is not NULL and n is not 0. A failure leaves p as it was. */
void *malloc_resize(void *p, size_t n);

/* realloc in the other cases: allocates if p is NULL, otherwise frees p and returns NULL. */
void *malloc_or_free(void *p, size_t n);

/* `align` is a power of two. Returns NULL where Sheaf steps aside. */
void *malloc_aligned(size_t align, size_t n);

/*
 * The usable bytes from p, which is not NULL, to the end of its block. A pointer that does not belong to this
 * allocator is reported as misuse by `call`, and the process is aborted; if it belongs to another malloc
 * (sheaf_owner_of_foreign()), the result is SIZE_OF_ANOTHER.
 */
#define SIZE_OF_ANOTHER SIZE_MAX
size_t malloc_size(const void *p, const char *call);

/*
 * Bytes of live allocations and of free memory, for mallinfo and similar functions. While no other thread runs,
 * and without hardening and without typesafe slabs that wait for a grace period,
 *     in_use + cached + set_aside + free_in_slabs + slab_rest = slab_bytes.
 * Otherwise the values are of slightly different moments.
 */
struct malloc_totals {
    size_t in_use; /* bytes of live objects in slabs, by class size */
    size_t in_use_count;
    size_t cached;   /* bytes of objects in sheaves and barns */
    size_t in_barns; /* the part of it in barns */
    /* Bytes of objects in prefilled sheaves, reserves and quarantine, or waiting for a grace period. */
    size_t set_aside;
    size_t free_in_slabs; /* bytes of objects free in slabs, whether touched before or not */
    size_t slab_rest;     /* bytes of slabs behind their last object */
    size_t slab_bytes;    /* all slices of slabs, in bytes */
    size_t large_bytes, large_count;
    size_t mapped_bytes;
    size_t warm_bytes;       /* bytes of free slices that may be resident */
    size_t span_cache_bytes; /* the part of it in span caches */
    size_t purged_bytes;
};
void malloc_totals(struct malloc_totals *totals);

#endif
