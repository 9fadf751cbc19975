/*
 * malloc on size classes and large blocks. NULL is returned with errno ENOMEM; free leaves errno alone.
 * All of it may be called from any thread and in signal handlers.
 */
#ifndef SHEAF_MALLOC_MALLOC_H
#define SHEAF_MALLOC_MALLOC_H

#include "os/compiler.h"

/* Set everything up, if that was not done; false: the system grants no memory. */
bool malloc_init(void);

void *malloc_slow(size_t n);

/* After malloc_try(): tries the remaining sections. Returns NULL if they fail; the caller then calls malloc_slow().
 * Leaves errno alone. */
void *malloc_retry(size_t n);
void free_slow(void *p);
void *malloc_zeroed(size_t n);

/* realloc where p is not NULL and n is not 0. A failure leaves p as it was. */
void *malloc_resize(void *p, size_t n);

/* realloc in the other cases: allocates if p is NULL, otherwise frees p and returns NULL. */
void *malloc_or_free(void *p, size_t n);

/* `align` is a power of two. */
void *malloc_aligned(size_t align, size_t n);

/* Bytes that may be used at p, from its start; p is not NULL. A pointer that is not ours is reported, as misuse of
 * `call`. */
size_t malloc_size(const void *p, const char *call);

/*
 * Bytes of live allocations and of what is kept free, for mallinfo and its kind. While nothing else runs, without
 * hardening and typesafe slabs that wait for a grace period,
 *     in_use + cached + set_aside + free_in_slabs + slab_rest = slab_bytes.
 * Otherwise each is of a slightly different moment.
 */
struct malloc_totals {
    size_t in_use; /* bytes of live objects in slabs, by class size */
    size_t in_use_count;
    size_t cached;        /* bytes of objects in sheaves and barns */
    size_t in_barns;      /* of these, in barns */
    size_t set_aside;     /* bytes of objects in prefilled sheaves, standing reserves and quarantine */
    size_t free_in_slabs; /* bytes of objects free in slabs, touched before or not */
    size_t slab_rest;     /* bytes of slabs behind their last object */
    size_t slab_bytes;    /* units of slabs */
    size_t large_bytes, large_count;
    size_t outside_bytes;
    size_t warm_bytes;  /* free units that may be resident */
    size_t stash_bytes; /* of these, in stashes */
    size_t purged_bytes;
};
void malloc_totals(struct malloc_totals *totals);

#endif
