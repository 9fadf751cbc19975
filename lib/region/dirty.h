/*
 * A bit for each unit of the region: its pages may hold data. The bits of free runs are protected by the region's
 * lock. Those of a run that is allocated or UNIT_BUSY do not change, so its owner may read them without the lock.
 */
#ifndef SHEAF_REGION_DIRTY_H
#define SHEAF_REGION_DIRTY_H

#include "os/compiler.h"

/* Set or clear the bits of [from, to); returns how many were set before. */
uint32_t dirty_change(uint32_t from, uint32_t to, bool set);

/* The number of dirty units in [from, to). */
uint32_t dirty_count(uint32_t from, uint32_t to);

/*
 * The first unit of the shortest tail of a run that has `units` dirty units; the run's first unit if it has fewer.
 */
uint32_t dirty_last(uint32_t unit, uint32_t length, uint64_t units);

/* The end of the last dirty unit of a run; the run's first unit if it has none. */
uint32_t dirty_end(uint32_t unit, uint32_t length);

/*
 * Return the dirty units of a run that is out of the bins to the system. Returns false when the system refuses
 * one.
 */
bool dirty_discard(uint32_t unit, uint32_t length);

#endif
