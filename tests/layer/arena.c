/* Bins, dirty bits, arenas and guards by themselves: where runs lie, how they are found, joined, grown and unmapped.
 */
#include "layer.h"
#include "region/dirty.h"
#include "region/guard.h"
#include "region/state.h"

#define CHUNK 512u /* units of a chunk in a region of the usual size */

static struct arena *slabs(void)
{
    return &region.arenas[ARENA_SLAB];
}

static struct arena *large(void)
{
    return &region.arenas[ARENA_LARGE];
}

/* The invariants of space/unit.h for all units that were dealt out. */
static void check_arenas(void)
{
    uint32_t warm[ARENA_COUNT] = {0}, unit = 0;
    bool was_free = false;
    while (unit < region_end()) {
        if (!region_has(unit)) {
            unit++;
            was_free = false;
            continue;
        }
        const struct unit *run = unit_at(unit);
        bool starts = unit && arena_index(unit) != arena_index(unit - 1);
        if (run->kind != UNIT_FREE) {
            must(run->kind != UNIT_TAIL);
            unit += run->kind == UNIT_INSIDE ? 1 : run->length;
            was_free = false;
            continue;
        }
        must(run->length && (starts || !was_free));
        const struct unit *tail = unit_at(unit + run->length - 1);
        must_be(tail->length, run->length);
        must(tail == run || tail->kind == UNIT_TAIL);
        uint32_t dirty = dirty_count(unit, unit + run->length);
        must_be(run->listed, dirty > 0);
        warm[arena_index(unit)] += dirty;
        unit += run->length;
        was_free = true;
    }
    must_be(slabs()->warm, warm[ARENA_SLAB]);
    must_be(large()->warm, warm[ARENA_LARGE]);
}

/* ---- bins ---- */

static struct bins bins;

static void put(uint32_t unit, uint32_t length)
{
    unit_at(unit)->length = length;
    bins_insert(&bins, unit);
}

static void the_shortest_run_that_fits(void)
{
    start_region(0, 0);
    put(10, 3);
    put(20, 5);
    put(30, 5);
    must_be(bins_find(&bins, 3), 10);
    must_be(bins_find(&bins, 4), 30); /* the one freed last */
    must_be(bins_find(&bins, 6), UNIT_NONE);
    bins_remove(&bins, 30);
    must_be(bins_find(&bins, 4), 20);
    bins_remove(&bins, 20);
    must_be(bins_find(&bins, 4), UNIT_NONE);
    must_be(bins_find(&bins, 1), 10);
}

static void runs_leave_a_bin_in_any_order(void)
{
    start_region(0, 0);
    for (uint32_t unit = 0; unit < 50; unit += 10)
        put(unit, 7);
    bins_remove(&bins, 20);
    bins_remove(&bins, 40);
    bins_remove(&bins, 0);
    must_be(bins_find(&bins, 7), 30);
    bins_remove(&bins, 30);
    must_be(bins_find(&bins, 7), 10);
    bins_remove(&bins, 10);
    must_be(bins_find(&bins, 7), UNIT_NONE);
}

/* From 64 units up a bin holds several lengths: a few runs of the own bin are tried before the next bin is. */
static void a_bin_of_several_lengths(void)
{
    start_region(0, 0);
    put(1000, 71);
    put(100, 65);
    must_be(bins_find(&bins, 70), 1000);
    for (uint32_t unit = 200; unit < 270; unit += 10)
        put(unit, 64);
    must_be(bins_find(&bins, 70), UNIT_NONE); /* the eight that are tried are too short */
    put(3000, 72);
    must_be(bins_find(&bins, 70), 3000);
    must_be(bins_find(&bins, 64), 260);
}

static void the_last_bin_is_searched_whole(void)
{
    start_region(0, 0);
    put(1, 16u << 22);
    for (uint32_t unit = 2; unit < 30; unit++)
        put(unit, 15u << 22);
    must_be(bins_find(&bins, 16u << 22), 1);
    must_be(bins_find(&bins, 17u << 22), UNIT_NONE);
}

/* ---- dirty bits ---- */

static void dirty_bits_across_words_and_tables(void)
{
    start_region(0, 0);
    must(space_reach(UNITS_FIRST + 1));
    uint32_t from = UNITS_FIRST - 70, to = UNITS_FIRST + 70;
    must_be(dirty_change(from, to, true), 0);
    must_be(dirty_change(from + 1, to + 1, true), 139);
    must_be(dirty_count(from, to + 1), 141);
    must(region_unit_clean(from - 1) && !region_unit_clean(from) && !region_unit_clean(to) &&
         region_unit_clean(to + 1));
    must_be(dirty_change(from + 5, to - 5, false), 130);
    must_be(dirty_count(0, to + 64), 11);
}

static void the_end_of_what_is_dirty(void)
{
    start_region(0, 0);
    dirty_change(10, 20, true);
    dirty_change(60, 70, true);
    must_be(dirty_end(5, 100), 70);
    must_be(dirty_end(30, 20), 30);
    must_be(dirty_last(5, 100, 12), 18);
    must_be(dirty_last(5, 100, 10), 60);
    must_be(dirty_last(5, 100, 21), 5);
}

static void only_dirty_stretches_are_discarded(void)
{
    start_region(0, 0);
    dirty_change(3, 5, true);
    dirty_change(8, 9, true);
    must(dirty_discard(2, 20));
    must_be(os_count(OS_DISCARD), 2);
    must_be(os_entry(OS_DISCARD, 0)->at, unit_address(3));
    must_be(os_entry(OS_DISCARD, 0)->size, 2 * UNIT_SIZE);
    must_be(os_entry(OS_DISCARD, 1)->at, unit_address(8));
    must_be(os_entry(OS_DISCARD, 1)->size, UNIT_SIZE);
    os_clear();
    os_refuse(OS_DISCARD, 1, 1);
    must(!dirty_discard(2, 20));
    must_be(os_count(OS_DISCARD), 1);
}

/* ---- free runs ---- */

static void neighbours_join_in_any_order(void)
{
    static const uint8_t orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    start_region(0, 0);
    for (size_t order = 0; order < array_size(orders); order++) {
        uint32_t run[3], length[3] = {5, 1, 7};
        for (int i = 0; i < 3; i++)
            run[i] = arena_take_frontier(slabs(), length[i], 1);
        must(arena_take_frontier(slabs(), 1, 1) == run[2] + 7);
        for (uint32_t i = 0; i < 3; i++)
            arena_insert(slabs(), run[orders[order][i]], length[orders[order][i]], 100 + i);
        must_be(unit_at(run[0])->kind, UNIT_FREE);
        must_be(unit_at(run[0])->length, 13);
        must_be(unit_at(run[0])->stamp, 102);
        must_be(unit_at(run[2])->kind, UNIT_INSIDE);
        must_be(unit_at(run[2] + 6)->kind, UNIT_TAIL);
        must_be(arena_take_free(slabs(), 13, 1), run[0]);
    }
}

/* What is left of an old run is as old as the run. */
static void a_rest_keeps_its_age(void)
{
    start_region(0, 0);
    uint32_t old = arena_take_frontier(slabs(), 10, 1);
    arena_take_frontier(slabs(), 1, 1);
    uint32_t new = arena_take_frontier(slabs(), 3, 1);
    arena_take_frontier(slabs(), 1, 1);
    dirty_change(old, new + 3, true);
    arena_insert(slabs(), old, 10, 100);
    arena_insert(slabs(), new, 3, 200);
    must_be(arena_take_free(slabs(), 4, 1), old);
    must_be(slabs()->oldest - 1, old + 4);
    must_be(unit_at(old + 4)->stamp, 100);
    must_be(unit_at(old + 4)->age_next, new);
    must_be(slabs()->newest - 1, new);
}

static void clean_runs_have_no_age(void)
{
    start_region(0, 0);
    uint32_t run = arena_take_frontier(slabs(), 10, 1);
    arena_take_frontier(slabs(), 1, 1);
    arena_insert(slabs(), run, 10, 100);
    must_be(slabs()->oldest, 0);
    must_be(unit_at(run)->listed, 0);
}

static void aligned_runs_leave_both_rests(void)
{
    start_region(0, 0);
    arena_take_frontier(large(), 1, 1);
    uint32_t run = arena_take_frontier(large(), 60, 1);
    arena_take_frontier(large(), 1, 1);
    arena_insert(large(), run, 60, 100);
    uint32_t at = arena_take_free(large(), 8, 16);
    must_be((uintptr_t)unit_address(at) % (16 * UNIT_SIZE), 0);
    must_be(unit_at(run)->length, at - run);
    must_be(unit_at(at + 8)->length, run + 60 - at - 8);
    must_be(arena_take_free(large(), 60, 1), UNIT_NONE);
    at = arena_take_frontier(large(), 3, 128);
    must_be((uintptr_t)unit_address(at) % (128 * UNIT_SIZE), 0);
    check_arenas();
}

static void the_frontier_takes_what_is_free_below_it(void)
{
    start_region(0, 0);
    uint32_t run = arena_take_frontier(slabs(), 5, 1);
    arena_insert(slabs(), run, 5, 100);
    must_be(arena_take_frontier(slabs(), 8, 1), run);
    must_be(slabs()->frontier, run + 8);
    must_be(arena_take_free(slabs(), 1, 1), UNIT_NONE);
}

/* ---- growing ---- */

static void memory_is_mapped_in_steps(void)
{
    start_region(0, 0);
    must_be(arena_take_frontier(slabs(), UNITS_START, 1), 0);
    must_be(os_count(OS_EXTEND), 0); /* these have memory from the start */
    must_be(arena_take_frontier(slabs(), 1, 1), UNITS_START);
    must_be(os_entry(OS_EXTEND, 0)->at, unit_address(UNITS_START));
    must_be(os_entry(OS_EXTEND, 0)->size, 17 * UNIT_SIZE); /* few units take no whole window */
    must_be(region_mapped(), UNITS_START + 17);
    must_be(arena_take_frontier(slabs(), 223, 1), UNITS_START + 1);
    os_clear();
    while (!os_count(OS_EXTEND))
        arena_take_frontier(slabs(), 1, 1);
    uint32_t used = slabs()->frontier - 1, step = (uint32_t)(os_entry(OS_EXTEND, 0)->size >> UNIT_SHIFT);
    must(step >= used / 4 && step <= used / 4 + 2 * WINDOW_UNITS);
}

/* Near a limit, where a whole step is refused, what is needed is enough. */
static void no_more_than_needed_near_a_limit(void)
{
    start_region(0, 0);
    arena_take_frontier(slabs(), UNITS_START, 1);
    os_room = 2 * UNIT_SIZE;
    must_be(arena_take_frontier(slabs(), 2, 1), UNITS_START);
    must_be(os_room, 0);
    must_be(slabs()->mapped, UNITS_START + 2);
    must_be(arena_take_frontier(slabs(), 1, 1), UNIT_NONE);
}

static void refused_growth_changes_nothing(void)
{
    start_region(0, 0);
    arena_take_frontier(slabs(), UNITS_START - 4, 1);
    uint32_t free = arena_take_frontier(slabs(), 4, 1);
    arena_insert(slabs(), free, 4, 100);
    struct arena before = *slabs();
    uint32_t mapped = region_mapped(), end = region_end();
    os_refuse(OS_EXTEND, 1, OS_ALWAYS);
    must_be(arena_take_frontier(slabs(), 5, 1), UNIT_NONE);
    must(!arena_move_frontier(slabs(), UNITS_START + 1));
    must(!memcmp(&before, slabs(), sizeof(before)));
    must(region_mapped() == mapped && region_end() == end);
    must_be(arena_take_free(slabs(), 4, 1), free);
    arena_insert(slabs(), free, 4, 100);
    os_grant();
    must_be(arena_take_frontier(slabs(), 5, 1), free);
}

/* Past the first GiB the tables have to grow; a stretch is not dealt out before they have. */
static void refused_tables_change_nothing(void)
{
    start_region(0, 0);
    arena_take_frontier(large(), 1, 1);
    struct arena before = *large();
    uint32_t end = region_end();
    os_refuse(OS_EXTEND, 1, OS_ALWAYS);
    must_be(arena_take_frontier(large(), UNITS_FIRST, 1), UNIT_NONE);
    must_be(region_end(), end);
    must(!memcmp(&before, large(), sizeof(before)));
}

static void very_much_is_requested_only_where_it_is_granted(void)
{
    start_region(0, 0);
    uint32_t end = region_end();
    os_refuse(OS_GRANTS, 1, OS_ALWAYS);
    must_be(arena_take_frontier(large(), 16384, 1), UNIT_NONE);
    must_be(os_entry(OS_GRANTS, 0)->size, 16384 * UNIT_SIZE);
    must_be(os_count(OS_EXTEND), 0);
    must_be(region_end(), end);
    os_clear();
    must(arena_take_frontier(large(), 16383, 1) != UNIT_NONE);
    must_be(os_count(OS_GRANTS), 0);
}

static void the_region_ends(void)
{
    start_region(8 * MIB, 0);
    uint32_t n = 0;
    while (arena_take_frontier(slabs(), 1, 1) != UNIT_NONE)
        n++;
    must_be(n, space.unit_most);
    must_be(arena_take_frontier(large(), 1, 1), UNIT_NONE);
    must(!arena_move_frontier(slabs(), space.unit_most + 1));
}

/* Two arenas that grow in turn: none has a run across the other's chunk, and what is left of a stretch is free. */
static void stretches_of_two_arenas(void)
{
    start_region(0, 0);
    must_be(arena_take_frontier(slabs(), CHUNK, 1), 0);
    must_be(arena_take_frontier(large(), 10, 1), CHUNK);
    must_be(arena_take_frontier(slabs(), 10, 1), 2 * CHUNK);
    must_be(slabs()->passed, CHUNK);
    must_be(arena_take_frontier(large(), 600, 1), 3 * CHUNK);
    must_be(arena_index(CHUNK), ARENA_LARGE);
    must_be(unit_at(CHUNK + 10)->kind, UNIT_FREE);
    must_be(unit_at(CHUNK + 10)->length, CHUNK - 10);
    must_be(arena_take_free(large(), CHUNK - 10, 1), CHUNK + 10);
    check_arenas();
}

/* Free runs of two arenas that touch are not joined. */
static void arenas_do_not_join(void)
{
    start_region(0, 0);
    uint32_t below = arena_take_frontier(slabs(), CHUNK, 1);
    uint32_t above = arena_take_frontier(large(), 10, 1);
    arena_insert(slabs(), below, CHUNK, 100);
    arena_insert(large(), above, 10, 100);
    must_be(unit_at(below)->length, CHUNK);
    must_be(unit_at(above)->length, 10);
    check_arenas();
}

static void a_larger_arena_gets_more_chunks(void)
{
    start_region(0, 0);
    must_be(arena_take_frontier(slabs(), 16 * CHUNK, 1), 0);
    arena_take_frontier(large(), 1, 1);
    must_be(arena_take_frontier(slabs(), 1, 1), 17 * CHUNK);
    must_be(slabs()->end, 19 * CHUNK); /* an eighth of 16 chunks */
}

/* A mapping of the program in the way: it stays, and the arena goes on behind it, in the next hole. */
static void over_a_mapping_in_the_way(void)
{
    start_region(0, 0);
    os_block(unit_address(64), 4096);
    uint32_t unit = arena_take_frontier(slabs(), 100, 1);
    must(unit != UNIT_NONE && unit > 64);
    memset(unit_address(unit), 1, 100 * UNIT_SIZE);
    must(os_intact(unit_address(64), 4096));
    must_be(arena_take_free(slabs(), UNITS_START, 1), 0); /* what was mapped before it */
    must_be(arena_take_free(slabs(), 1, 1), UNIT_NONE);
    must_be(unit, CHUNK);
    check_arenas();
}

static void a_refused_stretch_leaves_the_arenas_in_order(void)
{
    for (unsigned nth = 1; nth <= 4; nth++) {
        pid_t pid = fork();
        if (!pid) {
            start_region(0, 0);
            arena_take_frontier(slabs(), CHUNK - 20, 1);
            arena_take_frontier(large(), 10, 1);
            os_refuse(OS_EXTEND, nth, OS_ALWAYS);
            uint32_t unit = arena_take_frontier(slabs(), 100, 1);
            check_arenas();
            os_grant();
            if (unit == UNIT_NONE)
                unit = arena_take_frontier(slabs(), 100, 1);
            must(unit != UNIT_NONE);
            memset(unit_address(unit), 1, 100 * UNIT_SIZE);
            check_arenas();
            _exit(0);
        }
        int status;
        must(waitpid(pid, &status, 0) == pid && !status);
    }
}

/* ---- unmapping ---- */

/* So many units of large blocks that end at the frontier, free and clean. */
static uint32_t free_at_the_end(uint32_t units)
{
    start_region(0, 0);
    arena_take_frontier(large(), 8, 1);
    uint32_t unit = arena_take_frontier(large(), units, 1);
    arena_insert(large(), unit, units, 100);
    os_clear();
    return unit;
}

static void clean_units_at_the_end_are_unmapped(void)
{
    uint32_t unit = free_at_the_end(200), mapped = region_mapped(), of_arena = large()->mapped;
    dirty_change(unit, unit + 10, true);
    arena_unlink(large(), unit);
    arena_insert(large(), unit, 200, 100);
    arena_trim(large());
    uint32_t from = (uint32_t)round_up(unit + 10, WINDOW_UNITS);
    must_be(os_entry(OS_UNMAP, 0)->at, unit_address(from));
    must_be(os_entry(OS_UNMAP, 0)->size, (size_t)(of_arena - from) << UNIT_SHIFT);
    must_be(large()->frontier, from);
    must_be(region_mapped(), mapped - (of_arena - from));
    must_be(unit_at(unit)->length, from - unit);
    must_be(unit_at(unit)->stamp, 100);
    os_clear();
    must_be(arena_take_frontier(large(), 200, 1), unit);
    must_be(os_entry(OS_EXTEND, 0)->at, unit_address(from));
}

static void little_is_not_worth_unmapping(void)
{
    uint32_t unit = free_at_the_end(63);
    arena_trim(large());
    must_be(os_count(OS_UNMAP), 0);
    must_be(unit_at(unit)->length, 63);
}

static void what_is_dirty_stays_mapped(void)
{
    uint32_t unit = free_at_the_end(200);
    dirty_change(unit + 199, unit + 200, true);
    arena_trim(large());
    must_be(os_count(OS_UNMAP), 0);
}

static void refused_unmapping_changes_nothing(void)
{
    uint32_t unit = free_at_the_end(200), mapped = region_mapped();
    struct arena before = *large();
    os_refuse(OS_UNMAP, 1, 1);
    arena_trim(large());
    must_be(os_count(OS_UNMAP), 1);
    must(!memcmp(&before, large(), sizeof(before)));
    must_be(region_mapped(), mapped);
    must_be(arena_take_free(large(), 200, 1), unit);
}

/* Debugging reads its objects without a lock. */
static void nothing_is_unmapped_below_a_shadow(void)
{
    free_at_the_end(200);
    must(space_grow(&space.shadow, 1));
    os_clear();
    arena_trim(large());
    must_be(os_count(OS_UNMAP), 0);
}

/* ---- guards ---- */

static void guards_between_groups_of_slabs(void)
{
    bool zeroed;
    guard_on = true;
    start_region(0, 0);
    for (int i = 0; i < 100; i++) {
        uint32_t units = i % 3 ? 1 : 4, unit = region_alloc_slab(0, units, &zeroed);
        must(unit != UNIT_NONE);
        must(guard_from(unit) == guard_from(unit + units - 1) && unit + units - 1 != guard_from(unit));
    }
    uint32_t guards = 0;
    for (uint32_t unit = GUARD_GROUP - 1; unit < slabs()->frontier; unit += GUARD_GROUP, guards++) {
        must_be(unit_at(unit)->kind, UNIT_GUARD);
        must(os_covered(OS_CLOSE, unit_address(unit), UNIT_SIZE));
    }
    must(guards > 10);
    must_be(os_count(OS_CLOSE), guards);
    must_be(region_alloc_slab(0, GUARD_GROUP, &zeroed) != UNIT_NONE,
            1); /* too long for a group: among large blocks */
    must_be(arena_index(region_alloc_slab(0, GUARD_GROUP, &zeroed)), ARENA_LARGE);
    check_arenas();
}

static void large_blocks_have_no_guards_between_them(void)
{
    bool zeroed;
    guard_on = true;
    start_region(0, 0);
    uint32_t first = region_alloc(ARENA_LARGE, 1, 1, &zeroed);
    for (uint32_t i = 1; i < 4 * GUARD_GROUP; i++)
        must_be(region_alloc(ARENA_LARGE, 1, 1, &zeroed), first + i);
    must_be(region_alloc(ARENA_LARGE, 3 * GUARD_GROUP, 1, &zeroed), first + 4 * GUARD_GROUP);
    must_be(os_count(OS_CLOSE), 0);
}

/* The rest of a stretch is free, and used, although slabs have guards; where guards lie in it, it is given up. */
static void rests_of_stretches_beside_guards(void)
{
    guard_on = true;
    start_region(0, 0);
    must_be(arena_take_frontier(large(), 10, 1), CHUNK);
    arena_take_frontier(slabs(), 1, 1);
    while (arena_take_frontier(slabs(), 8, 1) < CHUNK) { /* until there is a second stretch of slabs */
    }
    must_be(arena_take_frontier(large(), CHUNK, 1), 3 * CHUNK);
    must_be(arena_take_free(large(), CHUNK - 10, 1), CHUNK + 10);
}

static void guards_of_each_node(void)
{
    bool zeroed;
    guard_on = true;
    numa.count = 2;
    start_region(0, 0);
    for (int i = 0; i < 40; i++) {
        uint32_t unit = region_alloc_slab(1, 1, &zeroed);
        must_be(region_node(unit), 1);
        must(unit != guard_from(unit));
    }
    const struct arena *arena = slab_arena(1);
    must(os_covered(OS_CLOSE, unit_address(guard_from(arena->start)), UNIT_SIZE));
}

/* Each guard splits a mapping, and of those a process has a number. */
static void guards_end_where_mappings_do(void)
{
    bool zeroed;
    guard_on = true;
    start_region(0, 0);
    for (int i = 0; i < GUARD_MOST; i++)
        must(guard_claim());
    must(!guard_claim());
    for (int i = 0; i < 40; i++)
        must(region_alloc_slab(0, 1, &zeroed) % GUARD_GROUP != GUARD_GROUP - 1);
    must_be(os_count(OS_CLOSE), 0);
    guard_drop();
    must(guard_claim());
}

static void a_guard_that_is_refused_stays_open(void)
{
    bool zeroed;
    guard_on = true;
    start_region(0, 0);
    os_refuse(OS_CLOSE, 1, 1);
    for (int i = 0; i < 45; i++)
        must(region_alloc_slab(0, 1, &zeroed) != UNIT_NONE);
    must(!os_entry(OS_CLOSE, 0)->done && os_entry(OS_CLOSE, 1)->done);
    must_be(os_entry(OS_CLOSE, 1)->at, unit_address(2 * GUARD_GROUP - 1));
}

static const struct test_case cases[] = {
    CASE(the_shortest_run_that_fits),
    CASE(runs_leave_a_bin_in_any_order),
    CASE(a_bin_of_several_lengths),
    CASE(the_last_bin_is_searched_whole),
    CASE(dirty_bits_across_words_and_tables),
    CASE(the_end_of_what_is_dirty),
    CASE(only_dirty_stretches_are_discarded),
    CASE(neighbours_join_in_any_order),
    CASE(a_rest_keeps_its_age),
    CASE(clean_runs_have_no_age),
    CASE(aligned_runs_leave_both_rests),
    CASE(the_frontier_takes_what_is_free_below_it),
    CASE(memory_is_mapped_in_steps),
    CASE(no_more_than_needed_near_a_limit),
    CASE(refused_growth_changes_nothing),
    CASE(refused_tables_change_nothing),
    CASE(very_much_is_requested_only_where_it_is_granted),
    CASE(the_region_ends),
    CASE(stretches_of_two_arenas),
    CASE(arenas_do_not_join),
    CASE(a_larger_arena_gets_more_chunks),
    CASE(over_a_mapping_in_the_way),
    CASE(a_refused_stretch_leaves_the_arenas_in_order),
    CASE(clean_units_at_the_end_are_unmapped),
    CASE(little_is_not_worth_unmapping),
    CASE(what_is_dirty_stays_mapped),
    CASE(refused_unmapping_changes_nothing),
    CASE(nothing_is_unmapped_below_a_shadow),
    CASE(guards_between_groups_of_slabs),
    CASE(large_blocks_have_no_guards_between_them),
    CASE(rests_of_stretches_beside_guards),
    CASE(guards_of_each_node),
    CASE(guards_end_where_mappings_do),
    CASE(a_guard_that_is_refused_stays_open),
};

int main(int argc, char **argv)
{
    return run_cases(argc, argv, cases, array_size(cases));
}
