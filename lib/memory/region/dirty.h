/*
 * A bit for each slice of the region: its pages may hold data. The bits of free spans are protected by the region's
 * lock. Those of a span that is allocated or SLICE_BUSY do not change, so its owner may read them without the lock.
 */
#ifndef SHEAF_REGION_DIRTY_H
#define SHEAF_REGION_DIRTY_H

#include "platform/os/compiler.h"

/* Set or clear the bits of [from, to); returns how many were set before. */
uint32_t dirty_change(uint32_t from, uint32_t to, bool set);

/* The number of dirty slices in [from, to). */
uint32_t dirty_count(uint32_t from, uint32_t to);

/*
 * The first slice of the shortest tail of a span that has `slices` dirty slices; the span's first slice if it has
 * fewer.
 */
uint32_t dirty_last(uint32_t slice, uint32_t length, uint64_t slices);

/* The end of the last dirty slice of a span; the span's first slice if it has none. */
uint32_t dirty_end(uint32_t slice, uint32_t length);

/*
 * Return the dirty slices of a span that is out of the bins to the system. Returns false when the system refuses
 * one.
 */
bool dirty_discard(uint32_t slice, uint32_t length);

#endif
