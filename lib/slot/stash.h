/*
 * Short runs of large memory that a slot keeps for itself, as the kernel keeps pages for each CPU: one of each
 * length. For a block of 40 KiB that comes and goes, the region's lock and table are twice the work.
 *
 * A run in a stash is UNIT_CLOSED and, for the region, in use; its unit's dirty bits say nothing.
 */
#ifndef SHEAF_SLOT_STASH_H
#define SHEAF_SLOT_STASH_H

#include "slot/slot.h"

/* Whether there are any: not where little may stay resident, or where large blocks are hardened. */
extern hidden bool stash_on;
void stash_init(size_t keep_bytes, bool allowed);

/* So much may stay resident from now on. */
void stash_keep(size_t bytes);

/* A run of so many units; UNIT_NONE: none there. It is UNIT_LARGE then, and not zeroed. */
uint32_t stash_take(uint32_t units);

/* False: not here. */
bool stash_put(uint32_t unit);

/* All of them go back to the region. No lock held. */
void stash_flush(void);

/* What lies in them now, and how many runs were ever taken from them. */
struct stash_totals {
    uint64_t units, runs, taken;
};
struct stash_totals stash_totals(void);

#endif
