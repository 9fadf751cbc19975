/*
 * Large blocks between guards (SHEAF_HARDEN=guard). A span starts with closed slices, then comes the block, and from
 * the page behind its last requested byte the span is closed again. The block's first slice has kind SLICE_LARGE and
 * holds what is known of the block; the span's first slice has kind SLICE_GUARD.
 *
 * The span belongs to its caller from allocation to release, so nothing here takes a lock of its own.
 */
#ifndef SHEAF_MALLOC_GUARDED_H
#define SHEAF_MALLOC_GUARDED_H

#include "memory/region/region.h"

/*
 * Allocate a block for n bytes at a multiple of `align`. *zeroed tells whether it reads as zero. Returns NULL when
 * there is no room for guards or the system refuses them.
 */
void *guarded_alloc(size_t n, size_t align, bool *zeroed);

/* The accessible bytes. */
static inline size_t guarded_size(const struct slice *block)
{
    return (size_t)block->pages * space.page_size;
}

/*
 * Move the guard behind the block, within its slices. Returns false, with nothing changed, when n does not fit them
 * or the system refuses.
 */
bool guarded_resize(uint32_t slice, size_t n);

/*
 * Open the whole span of a block that is being freed. Returns its first slice, for region_free(), or SLICE_NONE when
 * the system refuses; the span then stays closed and allocated forever.
 */
uint32_t guarded_open(uint32_t slice);

/* Slices of guards, which the region counts as in use. */
extern hidden _Atomic uint64_t guarded_slices;

#endif
