#include "region/space.h"
#include "region/locks.h"
#include "region/unit.h"
#include "region/outside.h"
#include "os/rseq.h"
#include "os/vm.h"

#define REGION_ALIGN    (2ul << 20)
#define REGION_SMALLEST (8ul << 20)
#define FEW_SLOTS_BELOW (64ul << 20)
#define FEW_SLOTS       8
#define REGION_LARGEST  (64ul << 40)

/*
 * Descriptors of slabs, in lines of 64 bytes: 17 for a slab of 8-byte objects, 9, 5, 4, 3, 2 for larger ones. They
 * are not cut anew for another size, so that units that change their classes may come to need the sum. Only address
 * space.
 */
#define SLAB_BYTES_PER_UNIT ((17 + 9 + 5 + 4 + 3 + 2) * 64)

struct lock_group locks_first;
struct space space;

#define WINDOW         (2ul << 20)   /* what one page of page tables maps */
#define IDS_NEAR       (256ul << 10) /* of the window of base, what is left to ids */
#define HUB_COUNTERS   2             /* slots whose counters lie in the hub */
#define HUB_DIRTY      (256ul << 10) /* the dirty bits lie there if they are no more */
#define SLABS_FIRST    (128ul << 10)
#define SHEAVES_FIRST  (256ul << 10)
#define ONE_TABLE      (1ul << 30) /* what one page of page tables of the next level maps */
#define ONE_TABLE_FROM (16ul << 30)

static size_t take(size_t *at, size_t bytes)
{
    size_t start = *at;
    *at = round_up(start + bytes, UNIT_SIZE);
    return start;
}

/* Offsets from the start of the reservation. */
struct layout {
    size_t slabs, slabs_size, outside, base, sheaves, sheaves_size, counters, orders, dirty, slabs_first,
        sheaves_first, units, region, total;
};

/* How far what follows ids goes: the region's offset from base, when base has the offset `base`. */
static void lay_out_above(struct layout *l, size_t base, unsigned slots, size_t units)
{
    size_t at = base;
    l->base = take(&at, (size_t)slots << SLOT_SHIFT);
    l->sheaves = take(&at, l->sheaves_size);
    at = round_up(at + slots * COUNTER_BLOCK, WINDOW);
    l->counters = at += HUB_COUNTERS * COUNTER_BLOCK;
    size_t orders = (at + (2ul << 20) - l->sheaves) >> SHEAF_PAGE_SHIFT; /* as far as the first sheaves can lie */
    l->orders = take(&at, orders);
    size_t dirty = units / 8 + 8;
    if (dirty <= HUB_DIRTY)
        l->dirty = take(&at, dirty);
    l->slabs_first = take(&at, SLABS_FIRST);
    l->sheaves_first = take(&at, SHEAVES_FIRST);
    l->units = take(&at, units * sizeof(struct unit));
    if (dirty > HUB_DIRTY)
        l->dirty = take(&at, dirty);
    l->region = round_up(at, REGION_ALIGN);
    l->total = l->region + (units << UNIT_SHIFT);
}

static void lay_out(struct layout *l, unsigned slots, size_t region_bytes)
{
    size_t units = region_bytes >> UNIT_SHIFT;
    size_t sheaves = region_bytes / 64;
    sheaves = sheaves < (1ul << 20) ? 1ul << 20 : sheaves > (512ul << 20) ? 512ul << 20 : sheaves;
    l->sheaves_size = round_up(sheaves, UNIT_SIZE);

    size_t at = 0;
    l->slabs_size = units * SLAB_BYTES_PER_UNIT;
    l->slabs = take(&at, l->slabs_size);
    l->outside = take(&at, sizeof(struct outside) * OUTSIDE_MAX);
    lay_out_above(l, 0, slots, units);
    take(&at, ((l->region >> UNIT_SHIFT) + units) * sizeof(uint16_t));
    /* IDS_NEAR also makes up for what rounding up to windows adds from here: a few entries */
    lay_out_above(l, round_up(at, WINDOW) + IDS_NEAR, slots, units);
}

static bool reserve(unsigned slots, size_t region_bytes)
{
    struct layout l;
    size_t units = region_bytes >> UNIT_SHIFT;
    lay_out(&l, slots, region_bytes);
    /* from the window of base on; where little may be reserved nothing is asked for that would be cut off again */
    char *start = vm_reserve(l.total, l.total >= ONE_TABLE_FROM ? ONE_TABLE : REGION_ALIGN, l.base - IDS_NEAR);
    if (!start)
        return false;
    /* A huge page for the first byte of each table would cost more than all of them hold, and so in small programs.
     */
    size_t plain = l.region + ((units / 2 + LARGE_PLAIN) << UNIT_SHIFT);
    vm_advise_huge(start, plain < l.total ? plain : l.total, false);
    space.start = start;
    space.slots = slots;
    space.sheaves = start + l.sheaves;
    space.sheaves_size = l.sheaves_size;
    space.sheaves_first = start + l.sheaves_first;
    bool near = l.sheaves_first + SHEAVES_FIRST - l.base <= UINT32_MAX; /* not with thousands of slots */
    space.sheaves_first_size = near ? SHEAVES_FIRST : 0;
    space.orders = (uint8_t *)start + l.orders;
    space.counters = start + l.counters;
    space.units = (struct unit *)(void *)(start + l.units);
    space.dirty = (uint64_t *)(void *)(start + l.dirty);
    space.slabs = start + l.slabs;
    space.slabs_size = l.slabs_size;
    space.slabs_first = l.slabs_first - l.slabs;
    space.slabs_first_end = space.slabs_first + SLABS_FIRST;
    space.outside = (struct outside *)(void *)(start + l.outside);
    space.ids = (uint16_t *)(void *)(start + l.base) - ((l.region - l.base) >> UNIT_SHIFT);
    space.region = (uintptr_t)start + l.region;
    space.unit_count = (uint32_t)units;
    space.page_size = vm_page_size();
    space.total = l.total;
    space.base = (uintptr_t)start + l.base;
    if (space_commit(space.ids, ((l.region - l.base) >> UNIT_SHIFT) * sizeof(uint16_t)))
        return true;
    vm_unmap(start, l.total);
    return false;
}

/*
 * Twice the machine's memory is more than any sane commit limit, so with overcommit off the writable reservation is
 * refused and the staged one taken. RLIMIT_AS refuses both; then half of what was tried, until it fits, and of that
 * again half, because stacks and libraries need room too.
 */
bool space_init(unsigned slots, size_t region_bytes)
{
    size_t want = region_bytes;
    if (!want) {
        want = 16ul << 30;
        size_t memory = vm_machine_memory();
        while (want < 2 * memory && want < REGION_LARGEST)
            want *= 2;
    }
    want = want < REGION_SMALLEST ? REGION_SMALLEST : round_up(want, REGION_ALIGN);
    bool limited = false;
    unsigned all_slots = slots;
    for (; want >= REGION_SMALLEST; want = round_up(want / 2, REGION_ALIGN)) {
        /* with little to have, most of it must not go to slots; the caller sees that there are fewer than CPU numbers
         */
        slots = want < FEW_SLOTS_BELOW && all_slots > FEW_SLOTS ? FEW_SLOTS : all_slots;
        if (!reserve(slots, want)) {
            limited = true;
            continue;
        }
        if (limited && !region_bytes && want / 2 >= REGION_SMALLEST) {
            vm_unmap(space.start, space.total);
            limited = false;
            continue;
        }
        return true;
    }
    return false;
}

bool space_commit(void *from, size_t bytes)
{
    return vm_commit(from, bytes);
}
