/*
 * Blocks with mappings of their own, outside the region: where it has no room, where its lock is held below a signal
 * handler, and blocks of the size that the user chose for it (M_MMAP_THRESHOLD). They go back to the system when they
 * are freed. All functions are safe in signal handlers and take no lock.
 */
#ifndef SHEAF_REGION_OUTSIDE_H
#define SHEAF_REGION_OUTSIDE_H

#include "os/compiler.h"

/* NULL: no memory, or the table is full. The block is zeroed. */
void *outside_alloc(size_t size, size_t align);

/* Longer or shorter, moved if it must be, as mremap() does it. NULL: no memory, the block stands. */
void *outside_resize(void *p, size_t size);

/* Bytes that the block may use, 0 when `p` is not the start of one. */
size_t outside_size(const void *p);

/* False: `p` is not the start of a block. */
bool outside_free(void *p);

/* Bytes in all such blocks. */
size_t outside_bytes(void);

#endif
