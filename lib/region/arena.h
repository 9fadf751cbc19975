/*
 * Where one kind of run lives: a stretch of the region with its free runs, by length and by age. Protected by the
 * region's lock.
 */
#ifndef SHEAF_REGION_ARENA_H
#define SHEAF_REGION_ARENA_H

#include "region/bins.h"

/* Units from `frontier` up to `end` were never used. */
struct arena {
    uint32_t start, frontier, end;
    uint32_t committed;      /* staged: writable up to here */
    uint32_t oldest, newest; /* free and dirty runs by age, one more than the unit */
    uint32_t warm;           /* units that are free and dirty */
    uint32_t reached;        /* the frontier that the accounts know of (region/region.c) */
    bool guarded;            /* groups of it lie between guards, where guard_on */
    struct bins bins;
};

/* In zeroed memory. */
void arena_init(struct arena *arena, uint32_t start, uint32_t end);

/* Join with free neighbours and file. The joined run counts as freed at `stamp`. */
void arena_insert(struct arena *arena, uint32_t unit, uint32_t length, uint32_t stamp);

/* Take a free run out; afterwards its units are of kind UNIT_INSIDE. */
void arena_unlink(struct arena *arena, uint32_t unit);

/*
 * `units` units, the first at a multiple of `align` of address space; UNIT_NONE when there are none. Out of a free
 * run; or from the frontier, together with a free run that ends there.
 */
uint32_t arena_take_free(struct arena *arena, uint32_t units, uint32_t align);
uint32_t arena_take_frontier(struct arena *arena, uint32_t units, uint32_t align);

/* Make all up to there writable, where the reservation is staged. False: the system refused. */
bool arena_commit(struct arena *arena, uint32_t frontier);

#endif
