/*
 * The one reservation of address space, and what lies where in it.
 *
 *   slots         64 KiB for each slot: its words (cache/slot.h); the constant sheaf lies among those of slot 0
 *   sheaves       where sheaves are cut from (cache/sheaf.h)
 *   orders        one byte for each 4 KiB of sheaves: how large they are
 *   counters      128 KiB for each slot: struct of counters for each cache
 *   ids           two bytes for each unit of the region: the cache that its objects belong to, as an offset of words
 *   units         struct unit for each unit (region/unit.h)
 *   dirty         a bit for each unit: its pages may hold data
 *   slabs         descriptors of slabs (slab/slab.h)
 *   outside       struct of blocks that did not fit (region/outside.h)
 *   region        the units themselves
 *
 * Everything reads as zero until written, and costs nothing until then. What lies below the region is for the
 * allocator alone; the region is the users' and nothing of ours is ever written there.
 */
#ifndef SHEAF_REGION_SPACE_H
#define SHEAF_REGION_SPACE_H

#include "os/compiler.h"

#define UNIT_SHIFT       16 /* 64 KiB: 16 KiB saved 1 to 3% of memory and cost more (design) */
#define UNIT_SIZE        (1ul << UNIT_SHIFT)
#define CACHE_MAX        1024 /* caches, size classes of malloc included */
#define COUNTER_STRIDE   128  /* bytes of counters for each cache in a slot's block */
#define COUNTER_BLOCK    ((size_t)CACHE_MAX * COUNTER_STRIDE)
#define SHEAF_PAGE_SHIFT 12 /* sheaves are cut from pieces of 4 KiB, each of one order */

struct unit;
struct outside;

struct space {
    uintptr_t base; /* of the words: the constant sheaf; 0 until space_init() */
    unsigned slots; /* how many slots there is room for */
    char *sheaves;  /* must lie within 4 GiB above base: words hold 32-bit offsets */
    size_t sheaves_size;
    uint8_t *orders;
    char *counters;
    uint16_t *ids;
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

extern struct space space;

/* Reserve. `region_bytes` 0 means by the machine's memory. False: the system grants not even a small one. */
bool space_init(unsigned slots, size_t region_bytes);

/* Make a unit-sized table's entries [from, to) writable; free of cost when nothing is staged. */
bool space_commit(void *from, size_t bytes);

#endif
