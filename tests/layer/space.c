/* The space by itself: where its parts lie, how its tables grow, and what happens when the system refuses memory. */
#include "layer.h"
#include "platform/rseq/rseq.h"
#include "platform/os/vm.h"
#include "memory/space/slice.h"

#include <sys/mman.h>

/* ---- the plan ---- */

CASE(parts_do_not_overlap)
{
    must(space_init(64, 0));
    struct part {
        const char *start;
        size_t size;
    } parts[] = {
        {space.slabs.start, space.slabs.most},
        {space.dirty_table.start, space.dirty_table.most},
        {space.slices_table.start, space.slices_table.most},
        {space.counters_rest.start, space.counters_rest.most},
        {space.ids_table.start - space.ids_table.most, space.ids_table.most},
        {(char *)space.base, (size_t)space.slots << SLOT_SHIFT},
        {space.sheaves.start, space.sheaves.most},
        {(char *)space.mapped, 1},
        {space.caches, (size_t)CACHE_MAX * CACHE_ROW},
        {space.counters - space.slots * COUNTER_BLOCK, space.slots * COUNTER_BLOCK},
        {(char *)space.orders, 1},
        {(char *)space.dirty_first, SLICES_FIRST / 8},
        {(char *)space.chunks, space.slice_most >> space.chunk_shift},
        {space.slabs.start + space.slabs_first, space.slabs_first_end - space.slabs_first},
        {space.sheaves_first, space.sheaves_first_size},
        {(char *)space.slices_first, SLICES_FIRST * sizeof(struct slice)},
        {(char *)space.region, (size_t)space.slice_most << SLICE_SHIFT},
        {space.shadow.start, space.shadow.most},
    };
    for (size_t i = 1; i < array_size(parts); i++)
        must(parts[i - 1].start + parts[i - 1].size <= parts[i].start);
}

CASE(places_are_aligned_and_near)
{
    must(space_init(64, 0));
    must_be(space.base % SLICE_SIZE, 0);
    must_be(space.region % (HUGE_PAGE_SLICES << SLICE_SHIFT), 0);
    must((uintptr_t)space.sheaves_first + space.sheaves_first_size - space.base - CONSTANT_AT <= UINT32_MAX);
    must(slice_of((void *)(space.base + 1)) >= space.slice_count); /* below the region is no slice */
    must_be(slice_of(slice_address(7)), 7);
    must((char *)slice_id(0) < (char *)space.base && slice_id(1) == slice_id(0) - 1);
}

CASE(the_first_of_each_part_is_writable)
{
    must(space_init(64, 0));
    must(writable((void *)space.base) && writable(space.counters - COUNTER_BLOCK));
    must(writable(space.dirty_first) && writable(space.chunks) && writable(slice_at(SLICES_FIRST - 1)));
    must(writable(space.slabs.start + space.slabs_first_end - 1) && writable(space.sheaves_first));
    must(writable(slice_address(SLICES_START) - 1) && writable(slice_id(SLICES_FIRST - 1)));
    must(!writable(space.mapped));
    must_be((uintptr_t)slice_at(SLICES_FIRST - 1) + sizeof(struct slice), space.region); /* a gap would be charged */
}

/* Writable memory counts as used where overcommit is off; slots beyond the CPUs get it when they are needed. */
CASE(slots_open_when_they_are_needed)
{
    must(space_init(64, 0));
    unsigned open = space.slots_open;
    must_be(open, 4);
    char *next = (char *)space.base + ((size_t)open << SLOT_SHIFT),
         *counters = space.counters - (open + 1) * COUNTER_BLOCK;
    must(!writable(next) && !writable(counters));
    os_refuse(OS_OPEN, 2, 1); /* the words are granted, the counters are not */
    must(!space_open_slots(open + 1));
    must_be(space.slots_open, open);
    must(space_open_slots(open + 1));
    must(writable(next) && writable(counters));
    os_clear();
    must(space_open_slots(open));
    must_be(os_count(OS_OPEN), 0);
    must(!space_open_slots(space.slots + 1));
    must_be(space.slots_open, open + 1);
}

CASE(the_region_follows_the_machine)
{
    os_memory = 5ull << 40;
    must(space_init(4, 0));
    must_be((uint64_t)space.slice_most << SLICE_SHIFT, 32ull << 40);
}

CASE(a_small_region_has_small_chunks)
{
    must(space_init(4, 8 * MIB));
    must_be(space.slice_most, 128);
    must(space.slice_most >> space.chunk_shift >= 4);
    must((1u << space.chunk_shift) >= HUGE_PAGE_SLICES);
}

/* Slots take at most an eighth of what the process may have. */
CASE(few_slots_below_a_limit)
{
    os_limit = 64 * MIB;
    must(space_init(1024, 0));
    must_be(space.slots, 8);
}

CASE(halved_until_it_is_granted)
{
    os_refuse(OS_EXTEND, 1, 5); /* all places of the first size, and a hole for it */
    must(space_init(4, GIB));
    must_be((uint64_t)space.slice_most << SLICE_SHIFT, GIB / 2);
}

CASE(another_place_where_one_is_taken)
{
    os_refuse(OS_EXTEND, 1, 1);
    must(space_init(4, GIB));
    must_be((uint64_t)space.slice_most << SLICE_SHIFT, GIB);
}

CASE(nothing_is_left_where_it_is_refused)
{
    for (unsigned nth = 1; nth <= 2; nth++) {
        os_refuse(OS_EXTEND, nth, OS_ALWAYS);
        must(!space_init(16, GIB));
        must_be(os_mapped, 0);
        os_grant();
    }
    os_refuse(OS_EXTEND_READABLE, 1, OS_ALWAYS);
    must(!space_init(16, GIB));
    must_be(os_mapped, 0);
    os_refuse(OS_MAP, 1, OS_ALWAYS);
    must(!space_init(16, GIB));
    must_be(os_mapped, 0);
}

static char *in_the_way;

static void block_once(enum os_call call, void *at, size_t size)
{
    if (call == OS_EXTEND_READABLE && !in_the_way)
        os_block(in_the_way = (char *)at + size - os_page, os_page);
}

/* A place where something turns up half-way is left, and what turned up stands. */
CASE(a_mapping_in_the_way_of_the_start_survives)
{
    os_hook = block_once;
    must(space_init(16, GIB));
    must(in_the_way && os_intact(in_the_way, os_page));
    must_be((uint64_t)space.slice_most << SLICE_SHIFT, GIB);
}

static void block_planned_places(enum os_call call, void *at, size_t size)
{
    (void)size;
    if (call == OS_EXTEND && (uintptr_t)at % GIB == 0) /* the system chooses other places */
        mmap(at, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
}

/* Where every planned place is taken, the system chooses one that holds the plan. */
CASE(a_hole_where_no_place_is_free)
{
    os_hook = block_planned_places;
    must(space_init(64, 0));
    must_be(space.slots, 64);
    must_be((uint64_t)space.slice_most << SLICE_SHIFT, 8192 * GIB);
    must(space_grow(&space.slabs, 64 * MIB) && space_grow(&space.sheaves, 64 * MIB) && space_reach(SLICES_FIRST + 1));
    must_be(space.region % (HUGE_PAGE_SLICES << SLICE_SHIFT), 0);
}

/* ---- tables ---- */

CASE(tables_grow_in_steps)
{
    must(space_init(4, 0));
    os_clear();
    must(space_grow(&space.slabs, 1));
    must_be(os_entry(OS_EXTEND, 0)->at, space.slabs.start);
    must_be(os_entry(OS_EXTEND, 0)->size, MIB);
    must(space_grow(&space.slabs, MIB));
    must_be(os_count(OS_EXTEND), 1);
    must(space_grow(&space.slabs, MIB + 1));
    must_be(os_entry(OS_EXTEND, 1)->at, space.slabs.start + MIB);
    must_be(space.slabs.mapped, 2 * MIB);
    must(os_covered(OS_PLAIN, space.slabs.start, MIB)); /* a huge page for its first byte would be a waste */
}

CASE(a_refused_table_stands)
{
    must(space_init(4, 0));
    must(space_grow(&space.slabs, 1));
    os_refuse(OS_EXTEND, 1, 1);
    must(!space_grow(&space.slabs, 3 * MIB));
    must_be(space.slabs.mapped, MIB);
    must(space_grow(&space.slabs, 3 * MIB));
    must_be(space.slabs.mapped, 3 * MIB);
}

CASE(a_table_is_full_where_it_meets_a_mapping)
{
    must(space_init(4, 0));
    must(space_grow(&space.slabs, 1));
    os_block(space.slabs.start + 2 * MIB - os_page, os_page);
    must(!space_grow(&space.slabs, 2 * MIB));
    must(os_intact(space.slabs.start + 2 * MIB - os_page, os_page));
    must_be(space.slabs.mapped, MIB);
}

CASE(a_table_ends)
{
    must(space_init(4, 64 * MIB));
    os_clear();
    must(!space_grow(&space.sheaves, space.sheaves.most + 1));
    must_be(os_count(OS_EXTEND), 0);
    must(space_grow(&space.sheaves, space.sheaves.most));
    must_be(space.sheaves.mapped, space.sheaves.most);
}

CASE(tables_do_not_grow_below_a_handler)
{
    must(space_init(4, 0));
    BELOW_HANDLER(LOCK_REGION, must(!space_grow(&space.slabs, 1)));
    must_be(space.slabs.mapped, 0);
    must(space_grow(&space.slabs, 1));
}

CASE(more_caches_have_counters_elsewhere)
{
    must(space_init(4, 0));
    os_clear();
    must(space_grow_counters(COUNTER_GROUP - 1));
    must_be(os_count(OS_EXTEND), 0);
    must(space_grow_counters(COUNTER_GROUP) && space_grow_counters(CACHE_MAX - 1));
    for (unsigned number = 1; number < CACHE_MAX; number++) {
        uintptr_t last_slot = space_counters(number) - (space.slots - 1) * COUNTER_BLOCK;
        must(writable((void *)space_counters(number)) && writable((void *)last_slot));
        must(space_counters(number) != space_counters(number - 1));
    }
}

/* ---- slices ---- */

/* What the fast path of free compares with `lowest`. */
static uintptr_t compared(uintptr_t p)
{
    return (uintptr_t)((intptr_t)(space.base - 1 - p) >> SLICE_SHIFT);
}

CASE(the_region_reaches_further)
{
    must(space_init(4, 0));
    uintptr_t lowest = 0;
    space_publish_lowest(&lowest);
    must(compared(space.region + GIB - 1) > lowest); /* the last slice is ours */
    must_be(compared(space.region + GIB), lowest);
    must_be(space.slice_count, SLICES_FIRST);
    must(space_reach(SLICES_FIRST));
    must_be(space.slice_count, SLICES_FIRST);
    must(space_reach(SLICES_FIRST + 1));
    must_be(space.slice_count, 32768);
    must(writable(slice_at(32767)) && writable(slice_id(32767)));
    must(compared(space.region + 2 * GIB - 1) > lowest);
    must_be(compared(space.region + 2 * GIB), lowest);
    must(!space_reach(space.slice_most + 1));
}

CASE(a_refused_reach_changes_nothing)
{
    must(space_init(4, 0));
    for (unsigned nth = 1; nth <= 3; nth++) { /* ids, structs, dirty bits; what was granted before stays */
        os_refuse(OS_EXTEND, 1, 1);
        must(!space_reach(SLICES_FIRST + 1));
        must_be(space.slice_count, SLICES_FIRST);
        os_clear();
        os_refuse(OS_EXTEND, 2, OS_ALWAYS);
        bool done = space_reach(SLICES_FIRST + 1);
        must_be(done, nth == 3);
        os_grant();
    }
}

CASE(no_shadow_unless_there_is_one)
{
    must(space_init(4, GIB));
    os_clear();
    must(space_reach_shadow(64));
    must_be(os_count(OS_EXTEND), 0);
    must(space_grow(&space.shadow, 1));
    must(space_reach_shadow(64));
    must_be(space.shadow.mapped, 64 * SLICE_SIZE);
}

CASE(a_shadow_is_staged_where_it_must_be)
{
    must(space_init(4, GIB));
    os_stages = true;
    os_refuse(OS_EXTEND, 1, 1);
    must(space_grow(&space.shadow, 1));
    must(vm_staged && !writable(space.shadow.start));
    must(vm_commit(space.shadow.start, 1) && writable(space.shadow.start));
}

/* ---- where overcommit is off ---- */

/* The system refuses what a usual process may map. Then only what the smallest process writes is writable. */
CASE(little_is_writable_where_memory_is_staged)
{
    os_refuse(OS_MAP, 1, 1);
    must(space_init(64, 0));
    must(vm_staged && space.slots_open == 1);
    must(writable((void *)space.base) && writable(space.counters - COUNTER_BLOCK));
    must(!writable((void *)(space.base + (1ul << SLOT_SHIFT))) && !writable(space.counters - 3 * COUNTER_BLOCK));
    must(writable(space.dirty_first) && writable(space.chunks) && writable(slice_at(0)) && writable(slice_id(0)));
    must(writable(&space.orders[(size_t)(space.sheaves_first - space.sheaves.start) >> SHEAF_PAGE_SHIFT]));
    must(!writable(slice_at(SLICES_FIRST - 1)));
    must(os_page > 16384 || (!writable(space.orders) && !writable(slice_id(SLICES_FIRST - 1)))); /* in one page */
    must(!writable(space.sheaves_first) && !writable(space.slabs.start + space.slabs_first));
    must(!writable(slice_address(0)) && !writable(slice_address(SLICES_START) - 1));
}

CASE(staged_tables_are_committed_as_they_grow)
{
    os_refuse(OS_MAP, 1, 1);
    must(space_init(4, 0));
    os_refuse(OS_COMMIT, 1, 1);
    must(!space_grow(&space.boot_sheaves, 1) && !writable(space.sheaves_first));
    must(space_grow(&space.boot_sheaves, 1) && writable(space.sheaves_first));
    must(space_grow(&space.boot_slabs, 4097) && writable(space.slabs.start + space.slabs_first + 4096));
    must(space_grow(&space.sheaves, 4096) && writable(space.sheaves.start) && writable(space.orders));
    must(space_reach(9000) && writable(slice_at(8999)) && writable(slice_id(8999)));
    must(writable(&space.chunks[9000 >> space.chunk_shift]));
    must(space_reach(SLICES_FIRST + 1));
    for (uint32_t slice = 0; slice <= SLICES_FIRST; slice++)
        must(writable(slice_at(slice)) && writable(slice_id(slice)));
}

/* A process that may have little address space would be refused so much in any case. */
CASE(a_small_limit_is_no_sign_of_overcommit)
{
    os_limit = GIB;
    must(space_init(4, GIB));
    must(!vm_staged && writable(slice_address(0)));
}

CASE(the_setting_of_the_system_tells_as_well)
{
    os_overcommit_off = true;
    must(space_init(4, GIB));
    must(vm_staged && !writable(slice_address(0)));
}

CASE(rows_of_caches_open_by_group)
{
    must(space_init(4, 0));
    char *rows = space.caches + 3ul * COUNTER_GROUP * CACHE_ROW;
    must(!writable(rows));
    os_refuse(OS_OPEN, 1, 1);
    must(!space_open_caches(3) && !writable(rows));
    must(space_open_caches(3) && writable(rows) && writable(rows + COUNTER_GROUP * CACHE_ROW - 1));
    must(!writable(space.caches) && !writable(rows + COUNTER_GROUP * CACHE_ROW + os_page));
    os_clear();
    must(space_open_caches(3));
    must_be(os_count(OS_OPEN), 0);
}

/* ---- where memory is locked ---- */

CASE(little_is_mapped_where_memory_is_locked)
{
    atomic_store(&space.locked, true);
    must(space_init(64, 0));
    must(space.lean && space.slots_open == 1 && space.possible <= 64);
    must(os_mapped <= 512 * KIB + 8 * (os_page - 4096));
    must(writable((void *)space.base) && writable(space.counters - COUNTER_BLOCK) && writable(slice_address(0)));
    must(writable(space.dirty_first) && writable(space.chunks) && writable(slice_at(0)) && writable(slice_id(0)));
    must(writable(&space.orders[(size_t)(space.sheaves_first - space.sheaves.start) >> SHEAF_PAGE_SHIFT]));
}

CASE(lean_tables_grow_by_pages)
{
    atomic_store(&space.locked, true);
    must(space_init(64, 0));
    must(!writable(space.sheaves_first) && !writable(slice_at(SLICES_FIRST - 1)));
    size_t before = os_mapped;
    must(space_grow(&space.boot_sheaves, 1) && writable(space.sheaves_first));
    must(space_grow(&space.boot_slabs, 4097) && writable(space.slabs.start + space.slabs_first + 4096));
    must_be(os_mapped, before + os_page + round_up(4097, os_page));
    must(space_grow(&space.boot_slabs, 100000) && writable(space.slabs.start + space.slabs_first + 99999));
    must(space_grow(&space.sheaves, 4096) && writable(space.sheaves.start) && writable(space.orders));
    uintptr_t lowest = 0;
    space_publish_lowest(&lowest);
    for (uint32_t slices = 100; slices < 3 * SLICES_FIRST; slices += slices / 2) {
        must(space_reach(slices));
        must(space.slice_count >= slices);
        must_be(compared(space.region + ((uintptr_t)space.slice_count << SLICE_SHIFT)), lowest);
        for (uint32_t slice = 0; slice < slices; slice += 50)
            must(writable(slice_at(slice)) && writable(slice_id(slice)) &&
                 writable(&space.chunks[slice >> space.chunk_shift]));
    }
}

/* Both parts of a slot, or none. */
CASE(lean_slots_are_mapped_one_by_one)
{
    atomic_store(&space.locked, true);
    must(space_init(64, 0));
    if (space.slots < 2)
        _exit(CASE_SKIPPED); /* a machine of one CPU */
    size_t before = os_mapped;
    char *words = (char *)space.base + (1ul << SLOT_SHIFT);
    must(words[0] == 0 && !writable(words)); /* the fast paths look there */
    bool shared = os_page > COUNTER_BLOCK; /* the page of the counters is mapped, and that of the words only opened */
    for (unsigned nth = 1; nth <= (shared ? 1 : 2); nth++) {
        os_refuse(shared ? OS_OPEN : OS_EXTEND, nth, 1);
        must(!space_open_slots(2));
        must_be(space.slots_open, 1);
        must_be(os_mapped, before);
    }
    must(space_open_slots(2) && writable(words + (1ul << SLOT_SHIFT) - 1));
    must(writable(space.counters - 2 * COUNTER_BLOCK));
    must(space_open_caches(3) && writable(space.caches + 3ul * COUNTER_GROUP * CACHE_ROW));
    must(!space_open_slots(space.slots + 1));
}

/* What the system refuses at the start it may grant in smaller pieces. */
CASE(lean_where_the_start_is_refused)
{
    os_room = MIB;
    must(space_init(2, 0));
    must(space.lean && space.locked);
}

CASE(a_space_that_becomes_lean)
{
    must(space_init(64, 0));
    must(space_open_slots(6));
    *(char *)slice_at(40) = 1;
    space_slim(100, 3);
    size_t structs = os_page / sizeof(struct slice), shortened = round_up(5000, os_page);
    must(os_mapped <= 1536 * KIB + SLICES_START * SLICE_SIZE + 16 * (os_page - 4096));
    must_be(space.slots_open, 3);
    must(*(char *)slice_at(40) == 1 && !writable(slice_at((uint32_t)(100 + structs))) && space.slice_count >= 100);
    must(writable(space.sheaves_first + space.sheaves_first_size - 1));
    space_shorten(&space.boot_sheaves, 5000);
    must(writable(space.sheaves_first + shortened - 1) && !writable(space.sheaves_first + shortened));
    must(space_grow(&space.boot_sheaves, shortened + 1) && writable(space.sheaves_first + shortened));
    must(space_grow(&space.sheaves, 4096) && writable(space.orders));
    must(space_reach(SLICES_FIRST + 1));
    for (uint32_t slice = 0; slice <= SLICES_FIRST; slice += 7)
        must(writable(slice_at(slice)) && writable(slice_id(slice)) &&
             writable(&space.chunks[slice >> space.chunk_shift]));
    must(space_open_caches(2) && writable(space.caches + 2ul * COUNTER_GROUP * CACHE_ROW));
    size_t before = os_mapped;
    space_slim(100, 3);
    must_be(os_mapped, before);
}

/* ---- locks ---- */

CASE(locks_of_neighbours_lie_apart)
{
    for (unsigned i = 0; i < CACHE_MAX; i++) {
        must_be(lock_number(lock_of(i)), i);
        if (i)
            must((uintptr_t)lock_of(i) / 64 != (uintptr_t)lock_of(i - 1) / 64);
    }
}
