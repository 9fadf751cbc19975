/*
 * Large blocks: spans of slices, aligned to at least 64 KiB; in mappings of their own when the region has no room.
 */
#ifndef SHEAF_MALLOC_LARGE_H
#define SHEAF_MALLOC_LARGE_H

#include "memory/region/region.h"

/*
 * Allocate a block; NULL when there is no memory. With `zero` the contents are zeroed; memory that is known to be
 * zero is not written again.
 */
void *large_alloc(size_t n, size_t align, bool zero);

/* Free a block. `p` lies in a slice of the region without a slab; anything but a live block is reported. */
void large_free(void *p);

/* Blocks of at least this size have mappings of their own (memory/space/mapped.h); set by M_MMAP_THRESHOLD. */
extern hidden size_t large_threshold;

/*
 * Resize a block in the region, by moving it if necessary. Returns NULL when there is no memory; the block is then
 * unchanged.
 */
void *large_resize(void *p, size_t n);

/* The usable bytes of a live block; 0 when `p` is not the start of one. */
size_t large_size(const void *p);

/*
 * Blocks in use, without guards and without what waits in quarantine, and how many were ever allocated and freed.
 */
struct large_totals {
    uint64_t bytes, blocks;
    uint64_t allocs, frees;
    uint64_t warm_bytes;       /* free and possibly resident, including memory for slabs */
    uint64_t span_cache_bytes; /* the part of it in span caches */
};
struct large_totals large_totals(void);

/* The same without debugging, for front/malloc/large_debug.c. */
void *large_plain_alloc(size_t n, size_t align, bool zero);
void large_plain_free(void *p);
void *large_plain_resize(void *p, size_t n);

/*
 * Report what is wrong with a pointer into the region that is not the start of a live block; `call` names the
 * operation. The first returns if debugging is to continue.
 */
void large_warn(const char *call, const void *p);
_Noreturn void large_report(const char *call, const void *p);

#endif
