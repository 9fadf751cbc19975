/*
 * Large blocks between guards (SHEAF_HARDEN=guard): a run whose first units are closed, then the block, then closed
 * again from the page behind the last that was asked for. The block's own first unit is UNIT_LARGE and holds what is
 * known of it, as for other blocks; the run's is UNIT_GUARD.
 *
 * The run belongs to its caller from allocation to release, so that nothing here needs a lock.
 */
#ifndef SHEAF_MALLOC_GUARDED_H
#define SHEAF_MALLOC_GUARDED_H

#include "region/region.h"

/* A block for n bytes, at a multiple of `align`; NULL: no room for guards, or the system refuses them. *zeroed: it
 * reads as zero. */
void *guarded_alloc(size_t n, size_t align, bool *zeroed);

/* Bytes that are open. */
static inline size_t guarded_size(const struct unit *block)
{
    return (size_t)block->pages * space.page_size;
}

/* Move the guard behind the block, within its units. False: nothing changed. */
bool guarded_resize(uint32_t unit, size_t n);

/* Open the whole run of a block that is being freed; its first unit, for region_free(). UNIT_NONE: the system
 * refuses, and the run must stay as it is for ever. */
uint32_t guarded_open(uint32_t unit);

/* Units of guards, which the region counts as in use. */
extern hidden _Atomic uint64_t guarded_units;

#endif
