/*
 * Large blocks under debugging, as the cache "malloc-large": a red zone behind the requested bytes, poison in new
 * and freed memory, and the calls that allocated and freed.
 *
 * Some checks are missing: a red zone before a block (blocks are aligned to 64 KiB, on which users may rely),
 * checks of freed memory (its pages may be returned to the system at any time), poison beyond the first MiB
 * (programs allocate more than they touch), and blocks outside the region. realloc() still works in place where it
 * can.
 */
#ifndef SHEAF_MALLOC_LARGE_DEBUG_H
#define SHEAF_MALLOC_LARGE_DEBUG_H

#include "sheaf/kmem_cache.h"
#include "platform/os/compiler.h"

extern hidden slab_flags_t large_debug; /* 0 if large blocks are not debugged */

/* Set large_debug according to the options. Two threads may run this at once. */
void large_debug_start(void);

void *large_debug_alloc(size_t n, size_t align, bool zero);
void *large_debug_resize(void *p, size_t n);

/* Returns false when the free was an error, which was reported and is to be ignored. */
bool large_debug_free(void *p);

/* The requested bytes of a block; `room` if nothing is known of it. */
size_t large_debug_size(const void *p, size_t room);

#endif
