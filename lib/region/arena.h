/*
 * An arena: the part of the region that holds one kind of run, with its free runs by length and by age. Protected
 * by the region's lock.
 *
 * The region is dealt out to the arenas in chunks, one after another as they grow, so that everything ever used
 * lies together. An arena grows in its last *stretch* of chunks until another arena takes the next chunk; then it
 * continues in a new stretch above all others. The rest of the old stretch becomes a free run. No run spans two
 * stretches with another arena's chunks between them. Memory is mapped as the frontier advances; free and clean
 * memory at the frontier is unmapped again.
 */
#ifndef SHEAF_REGION_ARENA_H
#define SHEAF_REGION_ARENA_H

#include "os/vm.h"
#include "region/bins.h"
#include "space/space.h"

/* The units of the stretch from `frontier` to `end` are not in use; those from `mapped` on have no memory. */
struct arena {
    uint32_t start, frontier, end; /* of the current stretch */
    uint32_t mapped;
    uint32_t passed;         /* units of earlier stretches */
    uint32_t most;           /* the most units ever in use, gaps included; only grows */
    uint32_t oldest, newest; /* free and dirty runs by age, each one more than the unit */
    uint32_t warm;           /* free and dirty units */
    uint32_t reached;        /* the frontier up to which region/region.c has accounted units */
    uint8_t index;           /* among all arenas */
    uint8_t node;            /* for slabs: the preferred memory node, by index */
    bool slabs;              /* holds slabs, whose groups lie between guards if guard_on */
    struct bins bins;
};

/* `arena` is zeroed memory. The arena with index 0 gets the units that are mapped at the start. */
void arena_init(struct arena *arena, unsigned index, bool slabs, unsigned node);

/* The index of the arena that a unit belongs to. The unit must lie in a chunk that was dealt out. */
static inline unsigned arena_index(uint32_t unit)
{
    return space.chunks[unit >> space.chunk_shift] - 1u;
}

/* Join the run with free neighbours and add it to bins and list. The joined run counts as freed at `stamp`. */
void arena_insert(struct arena *arena, uint32_t unit, uint32_t length, uint32_t stamp);

/* Take a free run out of bins and list; its units become UNIT_INSIDE. */
void arena_unlink(struct arena *arena, uint32_t unit);

/*
 * Take `units` units whose address is a multiple of `align` units: from a free run, or from the frontier together
 * with a free run that ends there. Returns UNIT_NONE when there are none.
 */
uint32_t arena_take_free(struct arena *arena, uint32_t units, uint32_t align);
uint32_t arena_take_frontier(struct arena *arena, uint32_t units, uint32_t align);

/*
 * Move the frontier up within its stretch. Returns false when another arena's chunk is in the way or the system
 * grants no memory.
 */
bool arena_move_frontier(struct arena *arena, uint32_t frontier);

/*
 * Make a run that was taken writable. Returns false when the system refuses; what is clean is then uncommitted. Free
 * where nothing is staged (os/vm.h).
 */
bool arena_commit_staged(uint32_t unit, uint32_t units);
static inline bool arena_commit(uint32_t unit, uint32_t units)
{
    return likely(!vm_staged) || arena_commit_staged(unit, units);
}

/*
 * Return the pages of [from, to) to the system, and the right to write to them where memory is staged. The caller
 * owns these units; it need not hold the lock. Returns false when the system refuses.
 */
bool arena_uncommit(uint32_t from, uint32_t to);

/* Unmap free and clean memory at the end of the current stretch, if there is enough of it. */
void arena_trim(struct arena *arena);

/* Unmap what the current stretch has beyond its frontier, which nothing has used. */
void arena_slim(struct arena *arena);

#endif
