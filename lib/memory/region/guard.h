/*
 * Guards: slices without access, with SHEAF_HARDEN=guard.
 *
 * Slabs form groups: the last slice of each GUARD_GROUP slices of a slab arena is never used, so that a write that
 * runs through slabs ends there. Such a slice is set aside, under the region's lock, when the frontier passes it,
 * and closed after the lock is released. An access in this window is equivalent to one just before.
 */
#ifndef SHEAF_REGION_GUARD_H
#define SHEAF_REGION_GUARD_H

#include "platform/os/compiler.h"

#define GUARD_GROUP 16u /* slices: 1 MiB, of which a sixteenth is a guard */

extern hidden bool guard_on;

/*
 * Each closed piece splits a mapping into three, and a process may have 65530 mappings by default
 * (vm.max_map_count). At most GUARD_MOST pieces are closed at a time, to leave mappings for threads, files and
 * libraries; further memory has no guards.
 */
#define GUARD_MOST 16384

/*
 * guard_claim() must precede the closing of a piece, and returns false if there are too many; guard_drop() must
 * follow its opening.
 */
bool guard_claim(void);
void guard_drop(void);

/* The first guard at or above `slice`: the last slice of a group. */
static inline uint32_t guard_from(uint32_t slice)
{
    return slice | (GUARD_GROUP - 1);
}

/*
 * Close the guards of a node's slabs in [start, frontier), which lies in the current extent of its arena. The
 * caller must not hold the region's lock. Safe in signal handlers.
 */
void guard_close(unsigned node, uint32_t start, uint32_t frontier);

#endif
