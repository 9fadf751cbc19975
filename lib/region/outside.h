/*
 * Blocks with their own mappings, outside the region. They serve requests for which the region has no room,
 * requests of a signal handler that interrupted the holder of the region's lock, and sizes that the user chose
 * (M_MMAP_THRESHOLD). They are returned to the system when they are freed. All functions are safe in signal
 * handlers and take no lock.
 */
#ifndef SHEAF_REGION_OUTSIDE_H
#define SHEAF_REGION_OUTSIDE_H

#include "os/compiler.h"

/* Allocate a zeroed block; NULL when there is no memory or the table is full. */
void *outside_alloc(size_t size, size_t align);

/*
 * Resize a block, by moving its pages if necessary. Returns the block's address, or NULL when there is no memory
 * (the block is then unchanged) or `p` is not the start of a block.
 */
void *outside_resize(void *p, size_t size);

/* The usable bytes of a block; 0 when `p` is not the start of one. */
size_t outside_size(const void *p);

/* Returns false when `p` is not the start of a block. */
bool outside_free(void *p);

/* Visit all blocks, for the leak scan. Blocks that come or go meanwhile may be missed. */
void outside_each(void (*visit)(const void *start, size_t size, void *with), void *with);

/* The size of all these blocks in bytes. */
size_t outside_bytes(void);

#endif
