/*
 * The stash of a slot: one free run of each length from 1 to STASH_LENGTHS units, as the kernel keeps pages for each
 * CPU. A block of 40 KiB that is freed and allocated again costs half of what it costs with the region's lock and
 * tables.
 *
 * A run in a stash is UNIT_CLOSED and counts as in use in the region; its dirty bits say nothing.
 */
#ifndef SHEAF_SLOT_STASH_H
#define SHEAF_SLOT_STASH_H

#include "slot/slot.h"

/*
 * Whether slots keep runs: if that is allowed, and if at least one slot's stash fits into the bytes that may stay
 * resident.
 */
extern hidden bool stash_on;
void stash_init(size_t keep_bytes, bool allowed);

/* Change the number of bytes that may stay resident. The caller holds no lock. */
void stash_keep(size_t bytes);

/* Returns a run of that length, as UNIT_LARGE and not zeroed; UNIT_NONE if the current slot has none. */
uint32_t stash_take(uint32_t units);

/* Put a run that is UNIT_CLOSED. Returns false if the slot has one of that length, or keeps none of that length. */
bool stash_put(uint32_t unit);

/* Give all runs back to the region. The caller holds no lock. */
void stash_flush(void);

/* The units and runs in all stashes, and the number of runs that were ever taken from them. */
struct stash_totals {
    uint64_t units, runs, taken;
};
struct stash_totals stash_totals(void);

#endif
