/*
 * Blocks that did not fit into the region, or were wanted while its lock was out of reach: mappings of their own,
 * kept in a small table that is only looked into for pointers outside the region.
 */
#ifndef SHEAF_REGION_OUTSIDE_H
#define SHEAF_REGION_OUTSIDE_H

#include "os/compiler.h"

#define OUTSIDE_MAX 4096

struct outside {
    _Atomic uintptr_t start; /* 0: entry free. 1: being filled */
    _Atomic size_t size;     /* bytes mapped */
};

/* NULL: no memory, or the table is full. The block is zeroed. */
void *outside_alloc(size_t size, size_t align);

/* Bytes that the block may use, 0 when `p` is not the start of one. */
size_t outside_size(const void *p);

/* False: `p` is not the start of a block. */
bool outside_free(void *p);

/* Bytes in all such blocks. */
size_t outside_bytes(void);

#endif
