#include "region/space.h"
#include "region/unit.h"
#include "region/outside.h"
#include "os/rseq.h"
#include "os/vm.h"

#define REGION_ALIGN    (2ul << 20)
#define REGION_SMALLEST (8ul << 20)
#define FEW_SLOTS_BELOW (64ul << 20)
#define FEW_SLOTS       8
#define IDS_SLACK       32 /* entries: 2 MiB of units, for the rounding up */
#define REGION_LARGEST  (64ul << 40)

/*
 * Descriptors of slabs, in lines of 64 bytes: 17 for a slab of 8-byte objects, 9, 5, 4, 3, 2 for larger ones. They
 * are not cut anew for another size, so that units that change their classes may come to need the sum. Only address
 * space.
 */
#define SLAB_BYTES_PER_UNIT ((17 + 9 + 5 + 4 + 3 + 2) * 64)

struct space space;

static size_t take(size_t *at, size_t bytes)
{
    size_t start = *at;
    *at = round_up(start + bytes, 1ul << SLOT_SHIFT);
    return start;
}

static bool reserve(unsigned slots, size_t region_bytes)
{
    size_t units = region_bytes >> UNIT_SHIFT;
    size_t sheaves = region_bytes / 64;
    sheaves = sheaves < (1ul << 20) ? 1ul << 20 : sheaves > (512ul << 20) ? 512ul << 20 : sheaves;
    sheaves = round_up(sheaves, UNIT_SIZE);

    size_t end = 0;
    take(&end, (size_t)slots << SLOT_SHIFT);
    size_t sheaf_at = take(&end, sheaves);
    size_t orders = take(&end, sheaves >> SHEAF_PAGE_SHIFT);
    size_t counters = take(&end, slots * COUNTER_BLOCK);
    size_t table = take(&end, units * sizeof(struct unit));
    size_t dirty = take(&end, units / 8 + 8);
    size_t slab_at = take(&end, units * SLAB_BYTES_PER_UNIT);
    size_t outside = take(&end, sizeof(struct outside) * OUTSIDE_MAX);
    size_t ids = round_up(((end >> UNIT_SHIFT) + units + IDS_SLACK) * sizeof(uint16_t), UNIT_SIZE);
    end = round_up(ids + end, REGION_ALIGN) - ids;
    size_t total = ids + end + (units << UNIT_SHIFT);

    char *start = vm_reserve(total, REGION_ALIGN);
    if (!start)
        return false;
    /* A huge page for the first byte of each table would cost more than all of them hold, and so in small programs.
     */
    size_t plain = ids + end + ((units / 2 + LARGE_PLAIN) << UNIT_SHIFT);
    vm_advise_huge(start, plain < total ? plain : total, false);
    char *at = start + ids;
    space.start = start;
    space.slots = slots;
    space.sheaves = at + sheaf_at;
    space.sheaves_size = sheaves;
    space.orders = (uint8_t *)at + orders;
    space.counters = at + counters;
    space.ids = (uint16_t *)(void *)at - (end >> UNIT_SHIFT);
    space.units = (struct unit *)(void *)(at + table);
    space.dirty = (uint64_t *)(void *)(at + dirty);
    space.slabs = at + slab_at;
    space.slabs_size = outside - slab_at;
    space.outside = (struct outside *)(void *)(at + outside);
    space.region = (uintptr_t)at + end;
    space.unit_count = (uint32_t)units;
    space.page_size = vm_page_size();
    space.total = total;
    space.base = (uintptr_t)at;
    if (space_commit(space.ids, (end >> UNIT_SHIFT) * sizeof(uint16_t)))
        return true;
    vm_unmap(start, total);
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
