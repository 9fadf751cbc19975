/*
 * The one reservation of address space, and what lies where in it.
 *
 *   ids        from base downwards, two bytes for each unit above base: the cache that its objects belong to, as an
 *              offset of words; 0 for all that is no slab, as is whatever lies below the region
 *   slots      from base up, 64 KiB each: their words (cache/slot.h); in slot 0 the constant sheaf, too
 *   sheaves    where sheaves are cut from (cache/sheaf.h)
 *   orders     one byte for each 4 KiB of sheaves: how large they are
 *   counters   512 KiB for each slot: the counters of each cache (cache/counters.h)
 *   units      a struct unit for each unit (region/unit.h)
 *   dirty      a bit for each unit: its pages may hold data
 *   slabs      descriptors of slabs (slab/slab.h)
 *   outside    blocks that did not fit (region/outside.h)
 *   region     the units themselves
 *
 * Everything reads as zero until written, and costs nothing until then. What lies below the region is for the
 * allocator alone; the region is the users' and nothing of ours is ever written there.
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
    uint8_t *orders;
    char *counters;
    uint16_t *ids; /* behind that of the region's first unit */
    struct unit *units;
    uint64_t *dirty;
    char *slabs;
    size_t slabs_size;
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

static inline uint16_t *unit_id(size_t unit)
{
    return space.ids - 1 - unit;
}

#endif
