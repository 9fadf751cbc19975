/*
 * Where one kind of run lives: its part of the region, with its free runs, by length and by age. Protected by the
 * region's lock.
 *
 * The region is dealt out to the arenas in chunks, one after another as they grow, so that all of it that was ever
 * used lies together. An arena grows in its last *stretch* of chunks, where it stands while no other arena has taken
 * the next chunk; then it goes on in a new stretch behind all others. What is left of the old one is a free run. No
 * run lies in two stretches that others divide. Memory is mapped as the frontier needs it, and what is free and clean
 * at the frontier's end is unmapped again.
 */
#ifndef SHEAF_REGION_ARENA_H
#define SHEAF_REGION_ARENA_H

#include "region/bins.h"
#include "space/space.h"

/* Units of the stretch from `frontier` up to `end` are not in use; from `mapped` on they have no memory. */
struct arena {
    uint32_t start, frontier, end; /* of the stretch that it grows in */
    uint32_t mapped;
    uint32_t passed;         /* units of the stretches before */
    uint32_t most;           /* units that were ever in use at once, gaps included; only grows */
    uint32_t oldest, newest; /* free and dirty runs by age, one more than the unit */
    uint32_t warm;           /* units that are free and dirty */
    uint32_t reached;        /* the frontier that the accounts know of (region/region.c) */
    uint8_t index;           /* among all arenas */
    uint8_t node;            /* slabs: that whose memory is preferred */
    bool slabs;              /* whose groups lie between guards, where guard_on */
    struct bins bins;
};

/* In zeroed memory. The first arena gets what the space has mapped at the start. */
void arena_init(struct arena *arena, unsigned index, bool slabs, unsigned node);

/* The index of the arena that a unit belongs to; the unit lies in some chunk that was dealt out. */
static inline unsigned arena_index(uint32_t unit)
{
    return space.chunks[unit >> space.chunk_shift] - 1u;
}

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

/* Move the frontier up to there, in the same stretch. False: another arena is in the way, or there is no memory. */
bool arena_move_frontier(struct arena *arena, uint32_t frontier);

/* Unmap what is free and clean at the end of the last stretch, if it is worth it. */
void arena_trim(struct arena *arena);

#endif
