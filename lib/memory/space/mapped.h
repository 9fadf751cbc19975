/*
 * Blocks with their own mappings, outside the region. They serve requests for which the region has no room,
 * requests of a signal handler that interrupted the holder of the region's lock, and sizes that the user chose
 * (M_MMAP_THRESHOLD). They are returned to the system when they are freed. All functions are safe in signal
 * handlers and take no lock.
 */
#ifndef SHEAF_SPACE_MAPPED_H
#define SHEAF_SPACE_MAPPED_H

#include "memory/space/slice.h"

/*
 * Allocate a small block, which is not zeroed. Blocks of a kind, below MAPPED_KINDS, all have the same size, a
 * multiple of 16, and are aligned to the largest power of two that divides it. They share chunks of 64 KiB, which
 * stay mapped. Returns NULL when there is no memory or the size is above MAPPED_SMALL.
 */
#define MAPPED_KINDS 128
#define MAPPED_SMALL 8192u
void *mapped_small(unsigned kind, size_t size);

/* Allocate a zeroed block; NULL when there is no memory or the table is full. */
void *mapped_alloc(size_t size, size_t align);

/*
 * Resize a block that is not small, by moving its pages if necessary. Returns the block's address, or NULL when there
 * is no memory (the block is then unchanged) or `p` is not the start of such a block.
 */
void *mapped_resize(void *p, size_t size);

/* The usable bytes of a block, small or not; 0 when `p` is not the start of one. */
size_t mapped_size(const void *p);

/* Returns false when `p` is not the start of a block. */
bool mapped_free(void *p);

/* Visit all blocks, for the leak scan. Blocks that come or go meanwhile may be missed. */
void mapped_each(void (*visit)(const void *start, size_t size, void *with), void *with);

/*
 * Whether an address is of the region. The system may put a block into a part of the region that has no memory: it is
 * then the start of a block that is in the table, and its slice belongs to no span.
 */
static inline bool in_region(const void *p)
{
    uintptr_t slice = slice_of(p);
    return slice < space.slice_count &&
           (likely(*slice_id(slice) || read_once(slice_at(slice)->kind) != SLICE_INSIDE) || !mapped_size(p));
}

/* The size of all these blocks in bytes. */
size_t mapped_bytes(void);

#endif
