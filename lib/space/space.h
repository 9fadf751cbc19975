/*
 * The allocator's address space: where what lies. This is a plan; only its parts that are in use are mapped, so that
 * the process keeps its limits (RLIMIT_AS) and the rest of its address space. In the order of addresses:
 *
 *   slabs     descriptors of slabs (slab/slab.h), those beyond the first
 *   dirty     a bit for each unit, those beyond the first
 *   units     struct unit for each unit (space/unit.h), those beyond the first
 *   counters  those of caches from number COUNTER_GROUP up: for each group of caches 32 KiB for each slot
 *   ids       from base downwards, two bytes for each unit above base: the cache that its objects belong to, as an
 *             offset of words; 0 for all that is no slab, as is whatever lies below the region
 *   slots     from base, 64 KiB for each: its words (slot/slot.h); the constant sheaf lies among those of slot 0
 *   sheaves   where sheaves are cut from (slot/sheaf.h), those beyond the first
 *   outside   struct of blocks that did not fit (region/outside.h)
 *   counters  of the first group of caches: 32 KiB for each slot, that of slot 0 last
 *   orders    one byte for each 4 KiB from the start of sheaves to the end of the first ones: how large they are
 *   dirty     a bit for each of the first units: its pages may hold data
 *   chunks    a byte for each 32 MiB of the region: the arena that it belongs to (region/arena.h)
 *   first     descriptors of slabs, and then sheaves: those that are used first
 *   units     struct unit for each of the first units
 *   region    the units themselves
 *   shadow    a byte for each byte of the region: what debugging notes of it (feature/debug.h)
 *
 * The end of ids with the slots, and all from outside to the first 2 MiB of the region, are mapped at the start. The
 * table of blocks outside, and words and counters of slots that will hardly be used, are only readable until they
 * are. The other tables grow where they stand (struct space_table), the region as its arenas do. Nothing is ever
 * mapped over what somebody else has mapped: a table that meets such a mapping is full; an arena goes on behind it.
 *
 * Everything reads as zero until written. What lies below the region is for the allocator alone; the region is the
 * users' and nothing of ours is ever written there.
 *
 * What a small program touches lies in three windows of 2 MiB: the end of ids and the first slots; the hub, from the
 * counters of slot 0 to the first units; the start of the region. A window is one page of the kernel's page tables,
 * and fork pays for each: it is allocated, all its 512 entries are looked at, and the child's exit frees it. With
 * the tables one after another, six windows, a fork and the exit of its child took 165 us instead of 154.
 */
#ifndef SHEAF_SPACE_SPACE_H
#define SHEAF_SPACE_SPACE_H

#include "os/compiler.h"

#define UNIT_SHIFT       16 /* 64 KiB: 16 KiB saved 1 to 3% of memory and cost more (design) */
#define UNIT_SIZE        (1ul << UNIT_SHIFT)
#define UNITS_FIRST      16384u /* units whose structs and dirty bits lie in the hub: 1 GiB of the region */
#define UNITS_START      32u    /* units of the region that have memory at once */
#define WINDOW_UNITS     32u    /* units in 2 MiB: what one huge page, or one page of page tables, maps */
#define CACHE_MAX        2048   /* caches, size classes of malloc and siblings (node/node.h) included */
#define COUNTER_STRIDE   256    /* bytes of counters for each cache in a slot's block */
#define COUNTER_GROUP    128u   /* caches in a block */
#define COUNTER_BLOCK    ((size_t)COUNTER_GROUP * COUNTER_STRIDE)
#define SHEAF_PAGE_SHIFT 12 /* sheaves are cut from pieces of 4 KiB, each of one order */

struct unit;
/* An entry of the table of blocks with mappings of their own (region/outside.c). */
struct outside {
    _Atomic uintptr_t start; /* 0: never used. 1: being filled or emptied. 2: was used */
    _Atomic size_t size;     /* bytes mapped */
};

/* Twice as many as a process may have mappings by default (vm.max_map_count). A power of two. */
#define OUTSIDE_MAX (1u << 17)

/*
 * A table that grows from `start` upwards, or downwards, in whole steps. What is below `mapped` stays mapped and
 * usable; it only grows, under the region's lock, and is read without.
 */
struct space_table {
    char *start;
    _Atomic size_t mapped; /* bytes */
    size_t most;
    size_t step;
    bool down;
    bool staged; /* as vm_extend_staged() says */
};

struct space {
    uintptr_t base; /* of the words, and what ids and offsets count from; aligned to a unit; 0 until space_init() */
    unsigned slots; /* how many slots there is room for */
    struct space_table sheaves; /* within 4 GiB above the constant sheaf: words hold 32-bit offsets */
    char *sheaves_first;        /* above them, and as near */
    size_t sheaves_first_size;
    uint8_t *orders;
    char *counters; /* the end of slot 0's of the first group: see space_counters() */
    struct space_table counters_rest;
    uint16_t *ids; /* behind that of the region's first unit */
    struct unit *units_first;
    uint64_t *dirty_first;
    uint8_t *chunks;      /* one more than the arena's index; 0: nobody's */
    unsigned chunk_shift; /* a chunk has 1 << chunk_shift units, fewer than 32 MiB where the region must be small */
    struct space_table slabs;
    struct outside *outside;
    size_t slabs_first, slabs_first_end; /* bytes above the start of `slabs`: where the first ones lie */
    struct space_table ids_table, units_table, dirty_table, shadow;
    uintptr_t region; /* aligned to 2 MiB */
    /* Units that ids, structs and dirty bits exist for: the region ends there. Only grows, under the region's lock;
     * who has a block, or a unit's number, has seen it as large as that takes. */
    uint32_t unit_count;
    uint32_t unit_most; /* what it may become */
    size_t page_size;
    uintptr_t *lowest;           /* see space_tell_lowest() */
    size_t limit;                /* RLIMIT_AS at the start, SIZE_MAX for none */
    _Atomic unsigned slots_open; /* so many slots, from the first, have writable words and counters; only grows */
};

extern hidden struct space space;

/*
 * Choose a place and map what is needed at once. `region_bytes` is the most that the region may grow to, 0 for as
 * much as the address space has room for. Where the process is limited there are fewer slots than were asked for.
 * False: the system grants not even a small one.
 */
bool space_init(unsigned slots, size_t region_bytes);

/*
 * Let the first `to` bytes of a table be usable. False: the system refused, or its address space is used up or
 * somebody else's. Takes the region's lock when it has to grow; below a signal handler over its holder that fails.
 */
bool space_grow(struct space_table *table, size_t to);

/* Let the words and counters of the first `slots` slots be writable. False: the system refused. */
bool space_open_slots(unsigned slots);

/* Let there be at least `units` units, and what belongs to them but their memory. The region's lock is held. */
bool space_reach(uint32_t units);

/* Let the shadow, if there is one, have room for the first `units` units. The region's lock is held. */
bool space_reach_shadow(uint32_t units);

/*
 * The fast path of free knows by one comparison that an address is none of ours: (base - 1 - address) >> UNIT_SHIFT
 * is at or below `*word`, unsigned. From now on that is kept up to date as the region grows.
 */
void space_tell_lowest(uintptr_t *word);

/* Where slot 0 has the counters of a cache; those of slot n lie n COUNTER_BLOCKs below. */
static inline uintptr_t space_counters(unsigned number)
{
    unsigned group = number / COUNTER_GROUP;
    char *end = likely(!group) ? space.counters : space.counters_rest.start + group * space.slots * COUNTER_BLOCK;
    return (uintptr_t)end - COUNTER_BLOCK + number % COUNTER_GROUP * COUNTER_STRIDE;
}

/* Let there be counters for the cache of that number. False: no memory. */
static inline bool space_grow_counters(unsigned number)
{
    return space_grow(&space.counters_rest, number / COUNTER_GROUP * space.slots * COUNTER_BLOCK);
}

static inline uint16_t *unit_id(size_t unit)
{
    return space.ids - 1 - unit;
}

static inline void *unit_address(uint32_t unit)
{
    return (void *)(space.region + ((uintptr_t)unit << UNIT_SHIFT));
}

/* The unit of an address; at least unit_count when it is not in the region. */
static inline uintptr_t unit_of(const void *p)
{
    return ((uintptr_t)p - space.region) >> UNIT_SHIFT;
}

#endif
