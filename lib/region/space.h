/*
 * The one reservation of address space, and what lies where in it.
 *
 *   slabs     descriptors of slabs (slab/slab.h), those beyond the first
 *   outside   struct of blocks that did not fit (region/outside.h)
 *   ids       from base downwards, two bytes for each unit above base: the cache that its objects belong to, as an
 *             offset of words; 0 for all that is no slab, as is whatever lies below the region
 *   slots     from base, 64 KiB for each: its words (cache/slot.h); the constant sheaf lies among those of slot 0
 *   sheaves   where sheaves are cut from (cache/sheaf.h), those beyond the first
 *   counters  512 KiB for each slot, that of slot 0 last: struct of counters for each cache
 *   orders    one byte for each 4 KiB from the start of sheaves to the end of the first ones: how large they are
 *   dirty     a bit for each unit: its pages may hold data
 *   first     descriptors of slabs, and then sheaves: those that are used first
 *   units     struct unit for each unit (region/unit.h)
 *   region    the units themselves
 *
 * Everything reads as zero until written, and costs nothing until then. What lies below the region is for the
 * allocator alone; the region is the users' and nothing of ours is ever written there.
 *
 * What a small program touches lies in three windows of 2 MiB: the end of ids and the first slots; the hub, from the
 * counters of slot 0 to the first units; the start of the region. A window is one page of the kernel's page tables,
 * and fork pays for each: it is allocated, all its 512 entries are looked at, and the child's exit frees it. With
 * the tables one after another, six windows, a fork and the exit of its child took 165 us instead of 154.
 */
#ifndef SHEAF_REGION_SPACE_H
#define SHEAF_REGION_SPACE_H

#include "os/compiler.h"

#define UNIT_SHIFT       16 /* 64 KiB: 16 KiB saved 1 to 3% of memory and cost more (design) */
#define UNIT_SIZE        (1ul << UNIT_SHIFT)
#define CACHE_MAX        2048 /* caches, size classes of malloc and siblings (cache/node.h) included */
#define COUNTER_STRIDE   256  /* bytes of counters for each cache in a slot's block */
#define COUNTER_BLOCK    ((size_t)CACHE_MAX * COUNTER_STRIDE)
#define SHEAF_PAGE_SHIFT 12 /* sheaves are cut from pieces of 4 KiB, each of one order */

struct unit;
struct outside;

struct space {
    char *start;
    uintptr_t base; /* of the words, and what ids and offsets count from; aligned to a unit; 0 until space_init() */
    unsigned slots; /* how many slots there is room for */
    char *sheaves;  /* must lie within 4 GiB above the constant sheaf: words hold 32-bit offsets */
    size_t sheaves_size;
    char *sheaves_first; /* above them, and as near */
    size_t sheaves_first_size;
    uint8_t *orders;
    char *counters; /* the end of slot 0's: see space_counters() */
    uint16_t *ids;  /* behind that of the region's first unit */
    struct unit *units;
    uint64_t *dirty;
    char *slabs;
    size_t slabs_size;
    size_t slabs_first, slabs_first_end; /* bytes above `slabs`: where the first ones lie */
    struct outside *outside;
    uintptr_t region; /* aligned to 2 MiB */
    uint32_t unit_count;
    size_t page_size;
    size_t total; /* bytes reserved */
};

extern hidden struct space space;

/*
 * Slabs have the lower half of the region, large blocks the upper one. Beyond its first 64 MiB the system's policy
 * decides about huge pages for large blocks: where it is "always", as for other allocators' large blocks.
 */
#define LARGE_PLAIN 1024ul

/* Reserve. `region_bytes` 0 means by the machine's memory. False: the system grants not even a small one. */
bool space_init(unsigned slots, size_t region_bytes);

/* Make a unit-sized table's entries [from, to) writable; free of cost when nothing is staged. */
bool space_commit(void *from, size_t bytes);

/* Where a slot's counters lie. */
static inline char *space_counters(unsigned slot)
{
    return space.counters - (slot + 1) * COUNTER_BLOCK;
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
