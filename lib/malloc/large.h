/* Large blocks: runs of units, aligned to 64 KiB at least, outside the region when it has no room. */
#ifndef SHEAF_MALLOC_LARGE_H
#define SHEAF_MALLOC_LARGE_H

#include "region/region.h"

/* NULL: no memory. `zero` asks for zeroed contents; what is known to be zero is not written again. */
void *large_alloc(size_t n, size_t align, bool zero);

/* Free a block by its pointer, which lies in the region in a unit of no slab; anything but a live block is reported.
 */
void large_free(void *p);

/* Blocks of so many bytes or more, which the user chose (M_MMAP_THRESHOLD), have mappings of their own
 * (region/outside.h). */
extern hidden size_t large_threshold;

/* Longer or shorter, moved if it must be; NULL: no memory, the block stands. */
void *large_resize(void *p, size_t n);

/* Bytes of a live block; 0 when p is not the start of one. */
size_t large_size(const void *p);

/* Of the blocks in use, without guards and what waits in quarantine; and how many there ever were. */
struct large_totals {
    uint64_t bytes, blocks;
    uint64_t allocs, frees;
    uint64_t warm_bytes;  /* free and possibly resident; of slabs, too */
    uint64_t stash_bytes; /* of these, in stashes */
};
struct large_totals large_totals(void);

/* The same without debugging, for malloc/large_debug.c. */
void *large_plain_alloc(size_t n, size_t align, bool zero);
void large_plain_free(void *p);
void *large_plain_resize(void *p, size_t n);

/* What is wrong with a pointer to a unit of the region that is no live block's start. The first returns when
 * debugging is to go on. */
void large_tell(const char *call, const void *p);
_Noreturn void large_report(const char *call, const void *p);

#endif
