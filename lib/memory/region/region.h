/*
 * Spans of slices for slabs and large blocks, in separate arenas, so that neither fragments the other. With several
 * memory nodes there is an arena of slabs for each node, whose memory policy is set once for each part that is
 * mapped; free spans are then sorted by node without further work. Large blocks follow the system's policy.
 *
 * One lock protects all of it. Under it, only memory that is clean is unmapped; other memory is returned to the
 * system without the lock, after its span was taken out (SLICE_BUSY).
 *
 * Unless stated otherwise, functions take the region's lock, which the caller must not hold, and may be called in
 * signal handlers.
 */
#ifndef SHEAF_REGION_REGION_H
#define SHEAF_REGION_REGION_H

#include "memory/space/space.h"
#include "memory/space/slice.h"

enum arena_kind { ARENA_SLAB, ARENA_LARGE, ARENA_COUNT };

/* Counts of allocated and kept memory; read without the lock. */
struct region_stats {
    uint64_t slab_slices;
    uint64_t large_slices, large_blocks, large_alloc, large_free, large_remap;
    uint64_t warm_slices;   /* free and possibly resident */
    uint64_t purged_slices; /* returned to the system, in all */
    uint64_t reserve_slices;
};
extern hidden struct region_stats region_stats;

/* Slices of slabs and large blocks in use. */
static inline uint64_t region_in_use(void)
{
    return read_once(region_stats.slab_slices) + read_once(region_stats.large_slices);
}

/*
 * Set up the arenas; must be called once, before the region is used. If `chosen`, `keep_bytes` of free memory stay
 * resident regardless of age; otherwise `keep_bytes` limits what the region learns to keep.
 */
void region_init(size_t keep_bytes, bool chosen, uint32_t decay_ms);

/*
 * Allocate `slices` slices at an address that is a multiple of `align` slices (a power of two). Returns SLICE_NONE
 * when there are none. *zeroed tells whether all of it reads as zero. In a signal handler that interrupted the
 * lock's holder, a single slice comes from a reserve, and larger requests fail.
 */
uint32_t region_alloc(enum arena_kind arena, uint32_t slices, uint32_t align, bool *zeroed);

/*
 * The same for large blocks, but staged memory (platform/os/vm.h) is not committed: the caller commits each part
 * before it writes there.
 */
uint32_t region_alloc_parts(uint32_t slices, uint32_t align, bool *zeroed);

/*
 * The same for a slab of a memory node, by index (platform/os/numa.h). The span comes from that node's arena if it
 * has room.
 */
uint32_t region_alloc_slab(unsigned node, uint32_t slices, bool *zeroed);

/* The node whose arena of slabs a slice lies in. */
unsigned region_node(uint32_t slice);

/*
 * Free an allocated span. In a signal handler that interrupted the lock's holder, the span is put aside and freed by
 * the next call.
 */
void region_free(uint32_t slice);

/*
 * Resize the span of a large block in place. Returns false, with nothing changed, when the slices behind it are not
 * available or a signal handler interrupted the lock's holder.
 */
bool region_resize(uint32_t slice, uint32_t slices);

/* Whether a slice of an allocated span holds no data yet. Takes no lock. */
bool region_slice_clean(uint32_t slice);

/*
 * Return memory to the system: what has been free for the decay time, or everything. Returns the bytes. The caller
 * must not hold the region's lock.
 */
size_t region_purge(bool all);

/*
 * Return free memory to the system, whatever its age, except what the user chose to keep and, unless `all`, what
 * the region has learned to keep.
 */
void region_purge_idle(bool all);

/*
 * Tell the region that the system refused memory that it charges for. From then on the region keeps little, because
 * free memory that stays committed is missing elsewhere. Takes no lock.
 */
void region_refused(void);

/* Change what region_init() set. region_retain() does nothing in a signal handler that interrupted the lock's holder.
 */
void region_retain(size_t bytes, bool chosen);
void region_decay(uint32_t ms);

/* The same as region_purge_idle(false), and keep less until more slices are in use than now. Without decay nothing
 * changes. */
void region_purge_fallen(void);

/* Whether free memory of slabs stays resident because returned memory was soon missed. Takes no lock. */
bool region_retains_learned(void);

/*
 * Whether the region lately found no room, because of mappings that are not its own or because the system refused it.
 * Takes no lock.
 */
bool region_crowded(void);

/*
 * Unmap what is mapped but not in use, of the region and of the tables; the first `slots` slots are in use. No other
 * thread may exist. Returns false, with nothing changed, in a signal handler that interrupted the lock's holder.
 */
bool region_slim(unsigned slots);

/* The number of slices that are mapped. */
uint32_t region_mapped(void);

/* Whether a slice below region_end() belongs to an arena's chunk. */
bool region_has(uintptr_t slice);

/* The end of all chunks that were dealt out; only grows. */
uint32_t region_end(void);

/* The slices that the arenas of slabs have ever used, in sum; only grows. */
uint32_t region_slab_frontier(void);

#endif
