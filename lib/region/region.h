/*
 * Runs of units for slabs and large blocks, in two arenas, so that neither breaks up the other. With several memory
 * nodes the slabs' arena has a part for each, which prefers that node's memory: bound once as a whole, so that a run
 * never has to be bound anew, and free runs are found by node. Large blocks follow the system's policy.
 *
 * One lock. Nothing is called under it but the table's own code, and what maps memory and unmaps it where it is
 * clean. Memory is given back outside it: the run is taken out first (UNIT_BUSY).
 */
#ifndef SHEAF_REGION_REGION_H
#define SHEAF_REGION_REGION_H

#include "space/space.h"
#include "space/unit.h"

enum arena_kind { ARENA_SLAB, ARENA_LARGE, ARENA_COUNT };

/* What the region has given out and what it keeps; read without the lock. */
struct region_stats {
    uint64_t slab_units;
    uint64_t large_units, large_blocks, large_alloc, large_free, large_remap;
    uint64_t warm_units;   /* free and possibly resident */
    uint64_t purged_units; /* given back, in all */
    uint64_t reserve_units;
};
extern hidden struct region_stats region_stats;

/* Units of slabs and large blocks. */
static inline uint64_t region_in_use(void)
{
    return read_once(region_stats.slab_units) + read_once(region_stats.large_units);
}

/* `chosen`: so many bytes stay resident whatever their age; else they are a bound. */
void region_init(size_t keep_bytes, bool chosen, uint32_t decay_ms);

/*
 * `units` units, the first at a multiple of `align` units (a power of two) of address space. UNIT_NONE: there are
 * none. *zeroed tells that all of it reads as zero. In a signal handler that interrupted the region, a single unit
 * comes from a reserve.
 */
uint32_t region_alloc(enum arena_kind arena, uint32_t units, uint32_t align, bool *zeroed);

/* The same for a slab of a memory node, by index (os/numa.h): from its part of the slabs' arena if that has room. */
uint32_t region_alloc_slab(unsigned node, uint32_t units, bool *zeroed);

/* The node in whose part of the slabs' arena a unit lies. */
unsigned region_node(uint32_t unit);

/* Give back a run that was allocated. In a signal handler over the region, it is put aside and freed by the next
 * caller. */
void region_free(uint32_t unit);

/* Make the run at `unit` longer or shorter where it stands; false when its neighbour is in use. */
bool region_resize(uint32_t unit, uint32_t units);

/* Whether unit `unit` of an allocated run holds no data yet. */
bool region_unit_clean(uint32_t unit);

/*
 * Give memory back: what has been free for the decay time, or all of it. Returns the bytes.
 * Must not be called with any lock held.
 */
size_t region_purge(bool all);

/* Give back what is free: all but what the user chose to keep, and unless `all`, what was learned to be kept. */
void region_purge_idle(bool all);

/* The same, from now on. */
void region_keep(size_t bytes, bool chosen);

/* The same as region_purge_idle(false), and keep less until more is in use than now. */
void region_purge_fallen(void);

/* Whether free memory of slabs stays resident because what was returned was missed soon. Any context. */
bool region_keeps_learned(void);

/* Units of address space that are mapped. */
uint32_t region_mapped(void);

/* Whether a unit below region_end() was ever an arena's. */
bool region_has(uintptr_t unit);

/* The end of all units that were ever in use, or close to it; only grows. */
uint32_t region_end(void);

/* How many units the arena of slabs ever had; only grows. */
uint32_t region_slab_frontier(void);

#endif
