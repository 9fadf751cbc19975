/*
 * What the region's sources share: its arenas, and the accounts of what is free. Protected by the region's lock
 * unless told otherwise.
 */
#ifndef SHEAF_REGION_STATE_H
#define SHEAF_REGION_STATE_H

#include "region/arena.h"
#include "region/keep.h"
#include "region/region.h"
#include "os/numa.h"

#define RESERVE_UNITS 8

struct region {
    /* of slabs of the first node, of large blocks, of slabs of other nodes */
    struct arena arenas[ARENA_COUNT + NODES_MAX - 1];
    struct keep keep[ARENA_COUNT]; /* for slabs, of all nodes, and for large blocks */
    uint32_t
        leaving[ARENA_COUNT]; /* units that give_back() has taken out, and that count as warm until they are back */
    uint32_t no_less[ARENA_COUNT]; /* with so much warm, nothing was found that may go back; 0: not tried */
    uint64_t floor;                /* units that stay resident until all is asked for: the user chose so */
    uint32_t decay_ms;
    uint64_t fallen_to; /* units in use when the last burst ended; as long as no more are, less is kept */
    uint32_t debt[ARENA_COUNT];                /* units taken that were clean, since the last payment */
    _Atomic uint32_t aside_slabs, aside_large; /* units taken from the reserve that are not in the statistics yet */
    /* both are one more than the unit: */
    _Atomic uint32_t put_aside;              /* runs freed over the lock's holder, linked by bin_next */
    _Atomic uint32_t reserve[RESERVE_UNITS]; /* single units for signal handlers over the holder */
};
extern hidden struct region region;

static inline struct arena *slab_arena(unsigned node)
{
    return &region.arenas[node ? ARENA_COUNT + node - 1 : ARENA_SLAB];
}

static inline struct arena *arena_of(uint32_t unit)
{
    return &region.arenas[arena_index(unit)];
}

static inline enum arena_kind kind_of(const struct arena *arena)
{
    return arena == &region.arenas[ARENA_LARGE] ? ARENA_LARGE : ARENA_SLAB;
}

/* Units of the kind that are free and may be resident. */
static inline uint32_t warm_of(enum arena_kind kind)
{
    uint32_t large = region.arenas[ARENA_LARGE].warm;
    return kind == ARENA_LARGE ? large : (uint32_t)region_stats.warm_units - large;
}

static inline void count_warm(struct arena *arena, int64_t units)
{
    arena->warm += (uint32_t)units;
    region_stats.warm_units += (uint64_t)units;
    keep_warm(&region.keep[kind_of(arena)], warm_of(kind_of(arena)));
}

/* What signal handlers put aside is freed by whoever comes next, and what they took is counted. */
void region_collect(void);

#endif
