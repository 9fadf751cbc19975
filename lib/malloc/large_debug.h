/*
 * Large blocks under debug, as the cache "malloc-large": a red zone behind what was asked for, poison in what is
 * fresh and what was freed, and tracks.
 *
 * What is not there: a red zone before a block (blocks begin at 64 KiB, as their users may count on), a check of
 * freed memory (it may go back to the system at any time), poison beyond the first MiB (programs map more than they
 * touch), and blocks outside the region. realloc() works in place where it can, as ever.
 */
#ifndef SHEAF_MALLOC_LARGE_DEBUG_H
#define SHEAF_MALLOC_LARGE_DEBUG_H

#include "sheaf/kmem_cache.h"
#include "os/compiler.h"

extern hidden slab_flags_t large_debug; /* 0: none of this */

/* Set it by the options. Two threads may do this at once. */
void large_debug_start(void);

void *large_debug_alloc(size_t n, size_t align, bool zero);
void *large_debug_resize(void *p, size_t n);

/* False: it was misuse, which was reported and is to be ignored. */
bool large_debug_free(void *p);

/* What was asked for; `room` for blocks that are not known. */
size_t large_debug_size(const void *p, size_t room);

#endif
