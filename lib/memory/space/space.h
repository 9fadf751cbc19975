/*
 * The layout of the allocator's address space. It is a plan: only the parts in use are mapped, so that the process
 * keeps its limits (RLIMIT_AS) and the rest of its address space. In the order of addresses:
 *
 *   slabs     descriptors of slabs (memory/slab/slab.h) beyond the first
 *   dirty     dirty bits of the slices beyond the first
 *   slices     struct slice (memory/space/slice.h) of the slices beyond the first
 *   counters  those of caches from number COUNTER_GROUP up: for each group of caches 32 KiB per slot
 *   ids       downwards from base, two bytes for each 64 KiB above base: the cache that its objects belong to, as an
 *             offset of words; 0 for all slices without a slab and for everything below the region
 *   slots     upwards from base, 64 KiB for each slot: its words (cache/slot/slot.h); slot 0 holds the constant sheaf
 *   sheaves   memory of sheaves (cache/slot/sheaf.h) beyond the first
 *   mapped    the table of mapped blocks (memory/space/mapped.h)
 *   caches    CACHE_ROW bytes for each number: the tables of caches beyond the first group (cache/kmem_cache.h)
 *   counters  of the first group of caches: 32 KiB for each slot, that of slot 0 last
 *   orders    one byte for each 4 KiB from the start of sheaves to the end of the first ones: the size of its sheaves
 *   dirty     a dirty bit for each of the first slices: its pages may hold data
 *   chunks    a byte for each chunk (32 MiB) of the region: the arena that it belongs to (memory/region/arena.h)
 *   first     the first descriptors of slabs, then the first sheaves
 *   slices     struct slice of the first slices
 *   region    the slices themselves
 *   shadow    a byte for each byte of the region: the notes of debugging (diagnostics/feature/debug.h)
 *
 * Unless memory is locked, the end of ids with the slots, and everything from mapped to the first 2 MiB of the
 * region, are mapped at the start. The table of mapped blocks, the rows of caches, and the words and counters of
 * slots that will hardly be used, are only readable until they are needed. Where memory is staged (platform/os/vm.h),
 * so is everything else but what the smallest process writes. The other tables grow in place (struct space_table),
 * and the region grows with its arenas. Sheaf never maps over a foreign mapping: a table that meets one is full, an
 * arena continues behind it.
 *
 * All of it reads as zero until written. What lies below the region belongs to the allocator alone. The region
 * belongs to the user, and the allocator stores nothing of its own there.
 *
 * A small program touches three ranges of 2 MiB: the end of ids with the first slots; the bootstrap tables, from the
 * counters of the first slots to the first slices; and the start of the region. Each is mapped by one page of the
 * kernel's page tables, which fork must allocate and fill (docs/design.md, "Address space and page tables").
 */
#ifndef SHEAF_SPACE_SPACE_H
#define SHEAF_SPACE_SPACE_H

#include "platform/os/compiler.h"

#define SLICE_SHIFT 16 /* 64 KiB */
#define SLICE_SIZE  (1ul << SLICE_SHIFT)
/* Slices whose structs and dirty bits lie in the bootstrap tables: 1 GiB of the region. */
#define SLICES_FIRST    16384u
#define SLICES_START    32u /* slices of the region that are mapped from the start, unless memory is locked */
#define HUGE_PAGE_SHIFT 5
/* Slices in 2 MiB, which one huge page or one page of page tables maps. */
#define HUGE_PAGE_SLICES (1u << HUGE_PAGE_SHIFT)
#define CACHE_MAX        2048 /* caches, including size classes of malloc and siblings (cache/node/node.h) */
#define COUNTER_STRIDE   256  /* bytes of counters of one cache in a slot's block */
#define COUNTER_GROUP    128u /* caches in a block */
#define COUNTER_BLOCK    ((size_t)COUNTER_GROUP * COUNTER_STRIDE)
#define CACHE_ROW        1088 /* bytes that the cache layer keeps for a cache beyond the first group */
#define SHEAF_PAGE_SHIFT 12   /* sheaves are cut from pages of 4 KiB; all sheaves of a page have the same size */

struct slice;
/* An entry of the table of blocks with mappings of their own (memory/space/mapped.c). */
struct mapped {
    _Atomic uintptr_t start; /* 0: never used; 1: being filled or emptied; 2: was used */
    _Atomic size_t size;     /* bytes mapped */
};

/* Twice the number of mappings that a process may have by default (vm.max_map_count). A power of two. */
#define MAPPED_MAX  (1u << 17)
#define MAPPED_LEAN (1u << 12) /* where memory is locked */

/*
 * Attempts to grow that failed because a foreign mapping is in the way, which they may be without end. After the nth
 * in a row, from the second on, 1 << n attempts are refused without a system call. Protected by the region's lock;
 * `skip` is also read without it.
 */
struct space_taken {
    uint32_t skip, failures;
};

static inline bool taken_still(struct space_taken *taken)
{
    if (likely(!taken->skip))
        return false;
    write_once(taken->skip, taken->skip - 1);
    return true;
}

#define TAKEN_MOST 8u
static inline void taken_note(struct space_taken *taken, bool again)
{
    if (unlikely(again)) {
        taken->failures += taken->failures < TAKEN_MOST;
        write_once(taken->skip, taken->failures < 2 ? 0 : 1u << taken->failures);
    } else if (unlikely(taken->failures)) {
        taken->failures = 0;
    }
}

/*
 * A table that grows from `start`, upwards or downwards, in steps of `step` bytes. The first `mapped` bytes are
 * usable and stay so. `mapped` only grows, under the region's lock, and is read without it.
 */
struct space_table {
    char *start;
    _Atomic size_t mapped; /* bytes */
    size_t most;
    size_t step;
    bool down;
    bool staged;  /* mapped by vm_extend_staged() */
    bool at_boot; /* mapped from the start: grows by vm_commit(), and all of it is usable where nothing is staged */
    struct space_taken taken;
};

struct space {
    /* The words start here, and ids and offsets are relative to it. Aligned to a slice; 0 until space_init(). */
    uintptr_t base;
    unsigned slots;             /* slots that the plan has room for */
    struct space_table sheaves; /* within 4 GiB above the constant sheaf: words hold 32-bit offsets */
    char *sheaves_first;        /* above `sheaves`, within the same 4 GiB */
    size_t sheaves_first_size;
    struct space_table boot_slabs, boot_sheaves,
        boot_slices; /* the first descriptors, sheaves and structs of slices */
    uint8_t *orders;
    char *counters; /* the end of slot 0's block of the first group: see space_counters() */
    struct space_table counters_rest;
    uint16_t *ids;   /* just above the id of the region's first slice; ids grow downwards */
    size_t ids_boot; /* bytes below base that are mapped from the start; staged ones are committed by space_reach() */
    struct slice *slices_first;
    uint64_t *dirty_first;
    uint8_t *chunks;      /* one more than the arena's index; 0 if the chunk belongs to none */
    unsigned chunk_shift; /* a chunk has 1 << chunk_shift slices, fewer than 32 MiB if the region is small */
    struct space_table slabs;
    struct mapped *mapped;
    char *caches;
    size_t caches_size;                  /* 0 in the smallest space, which has no caches beyond the first group */
    size_t slabs_first, slabs_first_end; /* where the first descriptors lie, in bytes from the start of `slabs` */
    struct space_table ids_table, slices_table, dirty_table, shadow;
    uintptr_t region; /* aligned to 2 MiB */
    /*
     * Slices that have ids, structs and dirty bits; the region ends there. It only grows, under the region's lock.
     * A thread that has a block, or the number of a slice, sees a value above that slice.
     */
    uint32_t slice_count;
    uint32_t slice_most; /* the limit of slice_count */
    size_t page_size;
    uintptr_t *lowest;           /* see space_publish_lowest() */
    size_t limit;                /* RLIMIT_AS at the start; SIZE_MAX for none */
    _Atomic unsigned slots_open; /* the first slots_open slots have writable words and counters; only grows, but for
                                    space_slim() */
    unsigned possible;           /* no CPU has a number from here up */
    unsigned slices_start;       /* slices of the region that are mapped from the start */
    /*
     * Where memory is locked as it is mapped (mlockall()), or may be soon. Nothing is then mapped in advance. `lean`
     * says so of the tables, and stays: the bootstrap tables grow like others, and slots that are not open have no
     * more than the first page of their words, which the fast paths read. `locked` says so of what is mapped from now
     * on.
     */
    bool lean;
    _Atomic bool locked;
    _Atomic bool opening;                          /* a thread opens slots, if lean */
    struct space_table orders_table, chunks_table; /* if lean: what is mapped of these parts, but for their ends */
    _Atomic bool mapped_open;                      /* the table of mapped blocks is writable */
    uint32_t mapped_most;                          /* its entries, a power of two */
};

extern hidden struct space space;

/*
 * Choose a place and map what is needed from the start. `region_bytes` limits the size of the region; with 0 it is
 * as large as the address space allows. With a small RLIMIT_AS there are fewer slots than requested. Returns false
 * when the system does not grant even a small space.
 */
bool space_init(unsigned slots, size_t region_bytes);

/*
 * Make the first `to` bytes of a table usable. Returns false when the system refuses, the table is full or a
 * foreign mapping is in the way. Takes the region's lock to grow, and fails in a signal handler that interrupted
 * its holder.
 */
bool space_grow(struct space_table *table, size_t to);

/* Make the words and counters of the first `slots` slots writable. Returns false when the system refuses. */
bool space_open_slots(unsigned slots);

/*
 * Unmap what is not in use, and be lean from now on; the region uses `slices` slices, and the first `slots` slots are
 * in use. The caller holds the region's lock, and no other thread exists, because others may be about to use what is
 * unmapped.
 */
void space_slim(uint32_t slices, unsigned slots);

/* Shorten a bootstrap table to the first `used` bytes; the same conditions. */
void space_shorten(struct space_table *table, size_t used);

/* Make the rows of a group of caches writable. Returns false when the system refuses. */
bool space_open_caches(unsigned group);

/*
 * Extend slice_count to at least `slices`, with all tables but not the memory of the slices, and make the structs and
 * ids of all slices below `slices` and the bytes of their chunks writable. Returns false when the system refuses. The
 * caller holds the region's lock.
 */
bool space_reach(uint32_t slices);

/*
 * Extend the shadow, if it is in use, to the first `slices` slices. Returns false when the system refuses. The
 * caller holds the region's lock.
 */
bool space_reach_shadow(uint32_t slices);

/*
 * Store in *word, now and whenever the region grows, the value by which the fast path of free recognizes foreign
 * addresses with one comparison: an address is foreign if (base - 1 - address) >> SLICE_SHIFT is at or below *word,
 * unsigned. With NULL, no word is written any more.
 */
void space_publish_lowest(uintptr_t *word);

/* The address of a cache's counters in slot 0; those of slot n lie n COUNTER_BLOCKs below. */
static inline uintptr_t space_counters(unsigned number)
{
    unsigned group = number / COUNTER_GROUP;
    char *end = likely(!group) ? space.counters : space.counters_rest.start + group * space.slots * COUNTER_BLOCK;
    return (uintptr_t)end - COUNTER_BLOCK + number % COUNTER_GROUP * COUNTER_STRIDE;
}

/* Make the counters of the cache with this number usable. Returns false when there is no memory. */
static inline bool space_grow_counters(unsigned number)
{
    return space_grow(&space.counters_rest, number / COUNTER_GROUP * space.slots * COUNTER_BLOCK);
}

static inline uint16_t *slice_id(size_t slice)
{
    return space.ids - 1 - slice;
}

static inline void *slice_address(uint32_t slice)
{
    return (void *)(space.region + ((uintptr_t)slice << SLICE_SHIFT));
}

/* The slice of an address; at least slice_count for an address outside the region. */
static inline uintptr_t slice_of(const void *p)
{
    return ((uintptr_t)p - space.region) >> SLICE_SHIFT;
}

#endif
