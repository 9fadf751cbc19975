/*
 * The blocks of the heap: every object of a slab, every large block, every block outside the region and every sample,
 * numbered in this order, with a state for each.
 *
 * Objects that the allocator itself keeps are ABSENT: those free in slabs, and those in sheaves of slots, in spares,
 * barns, prefilled sheaves and the reserve, in quarantine, and waiting for an RCU grace period. In a debugged cache
 * the block is the user's part of the raw object.
 *
 * The tables are made and read while the other threads are stopped. A thread that could not be stopped makes the
 * result inexact, but never leads an access astray: addresses come from the tables alone, which stay mapped.
 */
#ifndef SHEAF_LEAK_HEAP_H
#define SHEAF_LEAK_HEAP_H

#include "diagnostics/leak/maps.h"
#include "cache/slot/sheaf.h"

struct kmem_cache;

enum block_state {
    BLOCK_ABSENT,    /* not with the program */
    BLOCK_LIVE,      /* no reference was found yet */
    BLOCK_REACHED,   /* referenced */
    BLOCK_LOST,      /* no reference at all, or only from blocks that are lost through this one */
    BLOCK_LOST_WITH, /* referenced from lost blocks only */
};

struct block {
    uintptr_t start;
    size_t size; /* as requested where that is known, else the usable bytes; at least 1 */
};

/* What a slice belongs to. */
struct heap_slice {
    uint32_t first; /* one more than the number of the first block of the slab, or of the large block; 0: neither */
    uint32_t head;  /* the first slice of it */
};

/* A block that is not in a slab and not a span of slices. */
struct heap_extra {
    struct block block;
    uint32_t stack; /* of a sample, in the depot */
};

struct heap {
    uint32_t slices;           /* slices of the region that are known */
    struct heap_slice *slice;  /* by slice */
    uint8_t *state;            /* by number: enum block_state */
    uint32_t blocks;           /* numbers */
    struct heap_extra *extras; /* by address; numbered from extra_first up */
    uint32_t extra_count, extra_first;
    uint64_t live; /* blocks that were live when the tables were made */
};

/* Fill the tables. Returns false if there is no memory for them. */
bool heap_read(struct heap *heap);

/*
 * Find the block that contains the address. Returns its number and sets *block; HEAP_NONE if there is none, or if it
 * is ABSENT.
 */
#define HEAP_NONE UINT32_MAX
uint32_t heap_find(const struct heap *heap, uintptr_t address, struct block *block);

/* Visit all blocks but those that are ABSENT, in the order of their numbers. */
typedef void heap_visitor(uint32_t number, struct block block, void *with);
void heap_each(const struct heap *heap, heap_visitor *visit, void *with);

/* The cache that a block belongs to, NULL for large ones; and the reference of its stack in the depot, 0 for none. */
const struct kmem_cache *heap_cache(const struct heap *heap, struct block block);
uint32_t heap_stack(const struct heap *heap, uint32_t number, struct block block);

/*
 * Set the state of objects that the allocator keeps to ABSENT (diagnostics/leak/kept.c). `stray` is called for the
 * contents of sheaves that are in no place known: those that a stopped thread was changing, and those that a fork
 * left behind. Their objects may be free or live. Returns false if there is no memory.
 */
bool heap_take_out_kept(struct heap *heap, maps_visitor *stray, void *with);

#endif
