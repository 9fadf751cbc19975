/*
 * State shared by the region's sources: its arenas and the accounts of free memory. Protected by the region's lock
 * unless stated otherwise.
 */
#ifndef SHEAF_REGION_STATE_H
#define SHEAF_REGION_STATE_H

#include "memory/region/arena.h"
#include "memory/region/retain.h"
#include "memory/region/region.h"
#include "platform/os/numa.h"

#define RESERVE_SLICES 8

struct region {
    /* slabs of the first node, large blocks, slabs of the other nodes */
    struct arena arenas[ARENA_COUNT + NODES_MAX - 1];
    struct retain retain[ARENA_COUNT]; /* for slabs of all nodes, and for large blocks */
    uint32_t leaving[ARENA_COUNT];     /* slices that purge() has taken out; still warm */
    uint32_t no_less[ARENA_COUNT];     /* with this many slices warm, nothing could be returned; 0: unknown */
    uint64_t floor;                    /* slices that stay resident until everything is returned: the user's choice */
    uint32_t decay_ms;
    _Atomic bool refused;       /* see region_refused(); until the next holder of the lock has seen it */
    uint64_t fallen_to;         /* slices in use when the last burst ended; less is kept until more are in use */
    uint32_t debt[ARENA_COUNT]; /* clean slices allocated since the last payment */
    _Atomic uint32_t aside_slabs, aside_large; /* slices taken from the reserve and not yet in the statistics */
    /* The values of both are one more than the slice. */
    _Atomic uint32_t put_aside;               /* spans freed in handlers over its holder, linked by bin_next */
    _Atomic uint32_t reserve[RESERVE_SLICES]; /* single slices for such handlers */
};
extern hidden struct region region;

/* What region_refused() does, for the sources of the region. */
static inline void note_refused(void)
{
    atomic_store_explicit(&region.refused, true, memory_order_relaxed);
}

static inline struct arena *slab_arena(unsigned node)
{
    return &region.arenas[node ? ARENA_COUNT + node - 1 : ARENA_SLAB];
}

static inline struct arena *arena_of(uint32_t slice)
{
    return &region.arenas[arena_index(slice)];
}

static inline enum arena_kind kind_of(const struct arena *arena)
{
    return arena == &region.arenas[ARENA_LARGE] ? ARENA_LARGE : ARENA_SLAB;
}

/* Slices of the kind that are free and possibly resident. */
static inline uint32_t warm_of(enum arena_kind kind)
{
    uint32_t large = region.arenas[ARENA_LARGE].warm;
    return kind == ARENA_LARGE ? large : (uint32_t)region_stats.warm_slices - large;
}

static inline void count_warm(struct arena *arena, int64_t slices)
{
    arena->warm += (uint32_t)slices;
    region_stats.warm_slices += (uint64_t)slices;
    keep_warm(&region.retain[kind_of(arena)], warm_of(kind_of(arena)));
}

/*
 * Free the spans that signal handlers put aside, and count what they allocated. The caller holds the region's lock.
 */
void region_collect(void);

#endif
