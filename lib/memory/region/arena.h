/*
 * An arena: the part of the region that holds one kind of span, with its free spans by length and by age. Protected
 * by the region's lock.
 *
 * The region is dealt out to the arenas in chunks, one after another as they grow, so that everything ever used
 * lies together. An arena grows in its last *extent* of chunks until another arena takes the next chunk; then it
 * continues in a new extent above all others. The rest of the old extent becomes a free span. No span spans two
 * extents with another arena's chunks between them. Memory is mapped as the frontier advances; free and clean
 * memory at the frontier is unmapped again.
 */
#ifndef SHEAF_REGION_ARENA_H
#define SHEAF_REGION_ARENA_H

#include "platform/os/vm.h"
#include "memory/region/bins.h"
#include "memory/space/space.h"

/* The slices of the extent from `frontier` to `end` are not in use; those from `mapped` on have no memory. */
struct arena {
    uint32_t start, frontier, end; /* of the current extent */
    uint32_t mapped;
    uint32_t passed;         /* slices of earlier extents */
    uint32_t most;           /* the most slices ever in use, gaps included; only grows */
    uint32_t oldest, newest; /* free and dirty spans by age, each one more than the slice */
    uint32_t warm;           /* free and dirty slices */
    uint32_t reached;        /* the frontier up to which memory/region/region.c has accounted slices */
    uint8_t index;           /* among all arenas */
    uint8_t node;            /* for slabs: the preferred memory node, by index */
    bool slabs;              /* holds slabs, whose groups lie between guards if guard_on */
    struct bins bins;
};

/* `arena` is zeroed memory. The arena with index 0 gets the slices that are mapped at the start. */
void arena_init(struct arena *arena, unsigned index, bool slabs, unsigned node);

/* The index of the arena that a slice belongs to. The slice must lie in a chunk that was dealt out. */
static inline unsigned arena_index(uint32_t slice)
{
    return space.chunks[slice >> space.chunk_shift] - 1u;
}

/* Join the span with free neighbours and add it to bins and list. The joined span counts as freed at `stamp`. */
void arena_insert(struct arena *arena, uint32_t slice, uint32_t length, uint32_t stamp);

/* Take a free span out of bins and list; its slices become SLICE_INSIDE. */
void arena_unlink(struct arena *arena, uint32_t slice);

/*
 * Take `slices` slices whose address is a multiple of `align` slices: from a free span, or from the frontier together
 * with a free span that ends there. Returns SLICE_NONE when there are none.
 */
uint32_t arena_take_free(struct arena *arena, uint32_t slices, uint32_t align);
uint32_t arena_take_frontier(struct arena *arena, uint32_t slices, uint32_t align);

/*
 * Move the frontier up within its extent. Returns false when another arena's chunk is in the way or the system
 * grants no memory.
 */
bool arena_move_frontier(struct arena *arena, uint32_t frontier);

/*
 * Make a span that was taken writable. Returns false when the system refuses; what is clean is then uncommitted. Free
 * where nothing is staged (platform/os/vm.h).
 */
bool arena_commit_staged(uint32_t slice, uint32_t slices);
static inline bool arena_commit(uint32_t slice, uint32_t slices)
{
    return likely(!vm_staged) || arena_commit_staged(slice, slices);
}

/*
 * Return the pages of [from, to) to the system, and the right to write to them where memory is staged. The caller
 * owns these slices; it need not hold the lock. Returns false when the system refuses.
 */
bool arena_uncommit(uint32_t from, uint32_t to);

/* Unmap free and clean memory at the end of the current extent, if there is enough of it. */
void arena_trim(struct arena *arena);

/* Unmap what the current extent has beyond its frontier, which nothing has used. */
void arena_slim(struct arena *arena);

#endif
