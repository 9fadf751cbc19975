/*
 * Guards: units without access, where SHEAF_HARDEN=guard asks for them.
 *
 * Between groups of slabs: the last of each GUARD_GROUP units of the slabs' arena is never handed out, so that a
 * write that runs on through slabs ends there. Such units are set aside when the frontier passes them, under the
 * region's lock, and closed afterwards without it: who finds one open for that moment could as well have come before.
 */
#ifndef SHEAF_REGION_GUARD_H
#define SHEAF_REGION_GUARD_H

#include "os/compiler.h"

#define GUARD_GROUP 16u /* units: 1 MiB, a sixteenth of the address space */

extern hidden bool guard_on;

/*
 * Each closed piece splits a mapping into three, and of those a process has 65530 by default (vm.max_map_count). So
 * that threads, files and libraries find some left, so many pieces are closed at once; beyond, memory goes without.
 */
#define GUARD_MOST 16384

/* Before a piece is closed: whether it may be. And after it was opened. */
bool guard_claim(void);
void guard_drop(void);

/* The first unit from `unit` up that is a guard; units count from the arena's start. */
static inline uint32_t guard_from(uint32_t unit)
{
    return unit | (GUARD_GROUP - 1);
}

/*
 * Close the guards of a node's slabs that lie in [start, frontier), the stretch that its arena grows in. No lock
 * held; safe in signal handlers.
 */
void guard_close(unsigned node, uint32_t start, uint32_t frontier);

#endif
