/* Bins, dirty bits, arenas and guards by themselves: where spans lie, how they are found, joined, grown and unmapped.
 */
#include "layer.h"
#include "memory/region/dirty.h"
#include "memory/region/guard.h"
#include "memory/region/state.h"

#define CHUNK 512u /* slices of a chunk in a region of the usual size */

static struct arena *slabs(void)
{
    return &region.arenas[ARENA_SLAB];
}

static struct arena *large(void)
{
    return &region.arenas[ARENA_LARGE];
}

/* The invariants of memory/space/slice.h for all slices that were dealt out. */
static void check_arenas(void)
{
    uint32_t warm[ARENA_COUNT] = {0}, slice = 0;
    bool was_free = false;
    while (slice < region_end()) {
        if (!region_has(slice)) {
            slice++;
            was_free = false;
            continue;
        }
        const struct slice *span = slice_at(slice);
        bool starts = slice && arena_index(slice) != arena_index(slice - 1);
        if (span->kind != SLICE_FREE) {
            must(span->kind != SLICE_TAIL);
            slice += span->kind == SLICE_INSIDE ? 1 : span->length;
            was_free = false;
            continue;
        }
        must(span->length && (starts || !was_free));
        const struct slice *tail = slice_at(slice + span->length - 1);
        must_be(tail->length, span->length);
        must(tail == span || tail->kind == SLICE_TAIL);
        uint32_t dirty = dirty_count(slice, slice + span->length);
        must_be(span->listed, dirty > 0);
        warm[arena_index(slice)] += dirty;
        slice += span->length;
        was_free = true;
    }
    must_be(slabs()->warm, warm[ARENA_SLAB]);
    must_be(large()->warm, warm[ARENA_LARGE]);
}

/* ---- bins ---- */

static struct bins bins;

static void put(uint32_t slice, uint32_t length)
{
    slice_at(slice)->length = length;
    bins_insert(&bins, slice);
}

CASE(the_shortest_run_that_fits)
{
    start_region(0, 0);
    put(10, 3);
    put(20, 5);
    put(30, 5);
    must_be(bins_find(&bins, 3), 10);
    must_be(bins_find(&bins, 4), 30); /* the one freed last */
    must_be(bins_find(&bins, 6), SLICE_NONE);
    bins_remove(&bins, 30);
    must_be(bins_find(&bins, 4), 20);
    bins_remove(&bins, 20);
    must_be(bins_find(&bins, 4), SLICE_NONE);
    must_be(bins_find(&bins, 1), 10);
}

CASE(runs_leave_a_bin_in_any_order)
{
    start_region(0, 0);
    for (uint32_t slice = 0; slice < 50; slice += 10)
        put(slice, 7);
    bins_remove(&bins, 20);
    bins_remove(&bins, 40);
    bins_remove(&bins, 0);
    must_be(bins_find(&bins, 7), 30);
    bins_remove(&bins, 30);
    must_be(bins_find(&bins, 7), 10);
    bins_remove(&bins, 10);
    must_be(bins_find(&bins, 7), SLICE_NONE);
}

/* From 64 slices up a bin holds several lengths: a few spans of the own bin are tried before the next bin is. */
CASE(a_bin_of_several_lengths)
{
    start_region(0, 0);
    put(1000, 71);
    put(100, 65);
    must_be(bins_find(&bins, 70), 1000);
    for (uint32_t slice = 200; slice < 270; slice += 10)
        put(slice, 64);
    must_be(bins_find(&bins, 70), SLICE_NONE); /* the eight that are tried are too short */
    put(3000, 72);
    must_be(bins_find(&bins, 70), 3000);
    must_be(bins_find(&bins, 64), 260);
}

CASE(the_last_bin_is_searched_whole)
{
    start_region(0, 0);
    put(1, 16u << 22);
    for (uint32_t slice = 2; slice < 30; slice++)
        put(slice, 15u << 22);
    must_be(bins_find(&bins, 16u << 22), 1);
    must_be(bins_find(&bins, 17u << 22), SLICE_NONE);
}

/* ---- dirty bits ---- */

CASE(dirty_bits_across_words_and_tables)
{
    start_region(0, 0);
    must(space_reach(SLICES_FIRST + 1));
    uint32_t from = SLICES_FIRST - 70, to = SLICES_FIRST + 70;
    must_be(dirty_change(from, to, true), 0);
    must_be(dirty_change(from + 1, to + 1, true), 139);
    must_be(dirty_count(from, to + 1), 141);
    must(region_slice_clean(from - 1) && !region_slice_clean(from) && !region_slice_clean(to) &&
         region_slice_clean(to + 1));
    must_be(dirty_change(from + 5, to - 5, false), 130);
    must_be(dirty_count(0, to + 64), 11);
}

CASE(the_end_of_what_is_dirty)
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

CASE(only_dirty_parts_are_discarded)
{
    start_region(0, 0);
    dirty_change(3, 5, true);
    dirty_change(8, 9, true);
    must(dirty_discard(2, 20));
    must_be(os_count(OS_DISCARD), 2);
    must_be(os_entry(OS_DISCARD, 0)->at, slice_address(3));
    must_be(os_entry(OS_DISCARD, 0)->size, 2 * SLICE_SIZE);
    must_be(os_entry(OS_DISCARD, 1)->at, slice_address(8));
    must_be(os_entry(OS_DISCARD, 1)->size, SLICE_SIZE);
    os_clear();
    os_refuse(OS_DISCARD, 1, 1);
    must(!dirty_discard(2, 20));
    must_be(os_count(OS_DISCARD), 1);
}

/* ---- free spans ---- */

CASE(neighbours_join_in_any_order)
{
    static const uint8_t orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    start_region(0, 0);
    for (size_t order = 0; order < array_size(orders); order++) {
        uint32_t span[3], length[3] = {5, 1, 7};
        for (int i = 0; i < 3; i++)
            span[i] = arena_take_frontier(slabs(), length[i], 1);
        must(arena_take_frontier(slabs(), 1, 1) == span[2] + 7);
        for (uint32_t i = 0; i < 3; i++)
            arena_insert(slabs(), span[orders[order][i]], length[orders[order][i]], 100 + i);
        must_be(slice_at(span[0])->kind, SLICE_FREE);
        must_be(slice_at(span[0])->length, 13);
        must_be(slice_at(span[0])->stamp, 102);
        must_be(slice_at(span[2])->kind, SLICE_INSIDE);
        must_be(slice_at(span[2] + 6)->kind, SLICE_TAIL);
        must_be(arena_take_free(slabs(), 13, 1), span[0]);
    }
}

/* What is left of an old span is as old as the span. */
CASE(a_rest_keeps_its_age)
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
    must_be(slice_at(old + 4)->stamp, 100);
    must_be(slice_at(old + 4)->age_next, new);
    must_be(slabs()->newest - 1, new);
}

CASE(clean_runs_have_no_age)
{
    start_region(0, 0);
    uint32_t span = arena_take_frontier(slabs(), 10, 1);
    arena_take_frontier(slabs(), 1, 1);
    arena_insert(slabs(), span, 10, 100);
    must_be(slabs()->oldest, 0);
    must_be(slice_at(span)->listed, 0);
}

CASE(aligned_runs_leave_both_rests)
{
    start_region(0, 0);
    arena_take_frontier(large(), 1, 1);
    uint32_t span = arena_take_frontier(large(), 60, 1);
    arena_take_frontier(large(), 1, 1);
    arena_insert(large(), span, 60, 100);
    uint32_t at = arena_take_free(large(), 8, 16);
    must_be((uintptr_t)slice_address(at) % (16 * SLICE_SIZE), 0);
    must_be(slice_at(span)->length, at - span);
    must_be(slice_at(at + 8)->length, span + 60 - at - 8);
    must_be(arena_take_free(large(), 60, 1), SLICE_NONE);
    at = arena_take_frontier(large(), 3, 128);
    must_be((uintptr_t)slice_address(at) % (128 * SLICE_SIZE), 0);
    check_arenas();
}

CASE(the_frontier_takes_what_is_free_below_it)
{
    start_region(0, 0);
    uint32_t span = arena_take_frontier(slabs(), 5, 1);
    arena_insert(slabs(), span, 5, 100);
    must_be(arena_take_frontier(slabs(), 8, 1), span);
    must_be(slabs()->frontier, span + 8);
    must_be(arena_take_free(slabs(), 1, 1), SLICE_NONE);
}

/* ---- growing ---- */

CASE(memory_is_mapped_in_steps)
{
    start_region(0, 0);
    must_be(arena_take_frontier(slabs(), SLICES_START, 1), 0);
    must_be(os_count(OS_EXTEND), 0); /* these have memory from the start */
    must_be(arena_take_frontier(slabs(), 1, 1), SLICES_START);
    must_be(os_entry(OS_EXTEND, 0)->at, slice_address(SLICES_START));
    must_be(os_entry(OS_EXTEND, 0)->size, 17 * SLICE_SIZE); /* few slices take no huge page as a whole */
    must_be(region_mapped(), SLICES_START + 17);
    must_be(arena_take_frontier(slabs(), 223, 1), SLICES_START + 1);
    os_clear();
    while (!os_count(OS_EXTEND))
        arena_take_frontier(slabs(), 1, 1);
    uint32_t used = slabs()->frontier - 1, step = (uint32_t)(os_entry(OS_EXTEND, 0)->size >> SLICE_SHIFT);
    must(step >= used / 4 && step <= used / 4 + 2 * HUGE_PAGE_SLICES);
}

/* Near a limit, where a whole step is refused, what is needed is enough. */
CASE(no_more_than_needed_near_a_limit)
{
    start_region(0, 0);
    arena_take_frontier(slabs(), SLICES_START, 1);
    os_room = 2 * SLICE_SIZE;
    must_be(arena_take_frontier(slabs(), 2, 1), SLICES_START);
    must_be(os_room, 0);
    must_be(slabs()->mapped, SLICES_START + 2);
    must_be(arena_take_frontier(slabs(), 1, 1), SLICE_NONE);
}

CASE(refused_growth_changes_nothing)
{
    start_region(0, 0);
    arena_take_frontier(slabs(), SLICES_START - 4, 1);
    uint32_t free = arena_take_frontier(slabs(), 4, 1);
    arena_insert(slabs(), free, 4, 100);
    struct arena before = *slabs();
    uint32_t mapped = region_mapped(), end = region_end();
    os_refuse(OS_EXTEND, 1, OS_ALWAYS);
    must_be(arena_take_frontier(slabs(), 5, 1), SLICE_NONE);
    must(!arena_move_frontier(slabs(), SLICES_START + 1));
    must(!memcmp(&before, slabs(), sizeof(before)));
    must(region_mapped() == mapped && region_end() == end);
    must_be(arena_take_free(slabs(), 4, 1), free);
    arena_insert(slabs(), free, 4, 100);
    os_grant();
    must_be(arena_take_frontier(slabs(), 5, 1), free);
}

/* Past the first GiB the tables have to grow; an extent is not dealt out before they have. */
CASE(refused_tables_change_nothing)
{
    start_region(0, 0);
    arena_take_frontier(large(), 1, 1);
    struct arena before = *large();
    uint32_t end = region_end();
    os_refuse(OS_EXTEND, 1, OS_ALWAYS);
    must_be(arena_take_frontier(large(), SLICES_FIRST, 1), SLICE_NONE);
    must_be(region_end(), end);
    must(!memcmp(&before, large(), sizeof(before)));
}

CASE(very_much_is_requested_only_where_it_is_granted)
{
    start_region(0, 0);
    uint32_t end = region_end();
    os_refuse(OS_GRANTS, 1, OS_ALWAYS);
    must_be(arena_take_frontier(large(), 16384, 1), SLICE_NONE);
    must_be(os_entry(OS_GRANTS, 0)->size, 16384 * SLICE_SIZE);
    must_be(os_count(OS_EXTEND), 0);
    must_be(region_end(), end);
    os_clear();
    must(arena_take_frontier(large(), 16383, 1) != SLICE_NONE);
    must_be(os_count(OS_GRANTS), 0);
}

CASE(the_region_ends)
{
    start_region(8 * MIB, 0);
    uint32_t n = 0;
    while (arena_take_frontier(slabs(), 1, 1) != SLICE_NONE)
        n++;
    must_be(n, space.slice_most);
    must_be(arena_take_frontier(large(), 1, 1), SLICE_NONE);
    must(!arena_move_frontier(slabs(), space.slice_most + 1));
}

/* Two arenas that grow in turn: none has a span across the other's chunk, and what is left of an extent is free. */
CASE(extents_of_two_arenas)
{
    start_region(0, 0);
    must_be(arena_take_frontier(slabs(), CHUNK, 1), 0);
    must_be(arena_take_frontier(large(), 10, 1), CHUNK);
    must_be(arena_take_frontier(slabs(), 10, 1), 2 * CHUNK);
    must_be(slabs()->passed, CHUNK);
    must_be(arena_take_frontier(large(), 600, 1), 3 * CHUNK);
    must_be(arena_index(CHUNK), ARENA_LARGE);
    must_be(slice_at(CHUNK + 10)->kind, SLICE_FREE);
    must_be(slice_at(CHUNK + 10)->length, CHUNK - 10);
    must_be(arena_take_free(large(), CHUNK - 10, 1), CHUNK + 10);
    check_arenas();
}

/* Free spans of two arenas that touch are not joined. */
CASE(arenas_do_not_join)
{
    start_region(0, 0);
    uint32_t below = arena_take_frontier(slabs(), CHUNK, 1);
    uint32_t above = arena_take_frontier(large(), 10, 1);
    arena_insert(slabs(), below, CHUNK, 100);
    arena_insert(large(), above, 10, 100);
    must_be(slice_at(below)->length, CHUNK);
    must_be(slice_at(above)->length, 10);
    check_arenas();
}

CASE(a_larger_arena_gets_more_chunks)
{
    start_region(0, 0);
    must_be(arena_take_frontier(slabs(), 16 * CHUNK, 1), 0);
    arena_take_frontier(large(), 1, 1);
    must_be(arena_take_frontier(slabs(), 1, 1), 17 * CHUNK);
    must_be(slabs()->end, 19 * CHUNK); /* an eighth of 16 chunks */
}

/* A mapping of the program in the way: it stays, and the arena goes on behind it, in the next hole. */
CASE(over_a_mapping_in_the_way)
{
    start_region(0, 0);
    os_block(slice_address(64), 4096);
    uint32_t slice = arena_take_frontier(slabs(), 100, 1);
    must(slice != SLICE_NONE && slice > 64);
    memset(slice_address(slice), 1, 100 * SLICE_SIZE);
    must(os_intact(slice_address(64), 4096));
    must_be(arena_take_free(slabs(), SLICES_START, 1), 0); /* what was mapped before it */
    must_be(arena_take_free(slabs(), 1, 1), SLICE_NONE);
    must_be(slice, CHUNK);
    check_arenas();
}

CASE(a_refused_extent_leaves_the_arenas_in_order)
{
    for (unsigned nth = 1; nth <= 4; nth++) {
        pid_t pid = fork();
        if (!pid) {
            start_region(0, 0);
            arena_take_frontier(slabs(), CHUNK - 20, 1);
            arena_take_frontier(large(), 10, 1);
            os_refuse(OS_EXTEND, nth, OS_ALWAYS);
            uint32_t slice = arena_take_frontier(slabs(), 100, 1);
            check_arenas();
            os_grant();
            if (slice == SLICE_NONE)
                slice = arena_take_frontier(slabs(), 100, 1);
            must(slice != SLICE_NONE);
            memset(slice_address(slice), 1, 100 * SLICE_SIZE);
            check_arenas();
            _exit(0);
        }
        int status;
        must(waitpid(pid, &status, 0) == pid && !status);
    }
}

/* ---- unmapping ---- */

/* So many slices of large blocks that end at the frontier, free and clean. */
static uint32_t free_at_the_end(uint32_t slices)
{
    start_region(0, 0);
    arena_take_frontier(large(), 8, 1);
    uint32_t slice = arena_take_frontier(large(), slices, 1);
    arena_insert(large(), slice, slices, 100);
    os_clear();
    return slice;
}

CASE(clean_slices_at_the_end_are_unmapped)
{
    uint32_t slice = free_at_the_end(200), mapped = region_mapped(), of_arena = large()->mapped;
    dirty_change(slice, slice + 10, true);
    arena_unlink(large(), slice);
    arena_insert(large(), slice, 200, 100);
    arena_trim(large());
    uint32_t from = (uint32_t)round_up(slice + 10, HUGE_PAGE_SLICES);
    must_be(os_entry(OS_UNMAP, 0)->at, slice_address(from));
    must_be(os_entry(OS_UNMAP, 0)->size, (size_t)(of_arena - from) << SLICE_SHIFT);
    must_be(large()->frontier, from);
    must_be(region_mapped(), mapped - (of_arena - from));
    must_be(slice_at(slice)->length, from - slice);
    must_be(slice_at(slice)->stamp, 100);
    os_clear();
    must_be(arena_take_frontier(large(), 200, 1), slice);
    must_be(os_entry(OS_EXTEND, 0)->at, slice_address(from));
}

CASE(little_is_not_worth_unmapping)
{
    uint32_t slice = free_at_the_end(63);
    arena_trim(large());
    must_be(os_count(OS_UNMAP), 0);
    must_be(slice_at(slice)->length, 63);
}

CASE(what_is_dirty_stays_mapped)
{
    uint32_t slice = free_at_the_end(200);
    dirty_change(slice + 199, slice + 200, true);
    arena_trim(large());
    must_be(os_count(OS_UNMAP), 0);
}

CASE(refused_unmapping_changes_nothing)
{
    uint32_t slice = free_at_the_end(200), mapped = region_mapped();
    struct arena before = *large();
    os_refuse(OS_UNMAP, 1, 1);
    arena_trim(large());
    must_be(os_count(OS_UNMAP), 1);
    must(!memcmp(&before, large(), sizeof(before)));
    must_be(region_mapped(), mapped);
    must_be(arena_take_free(large(), 200, 1), slice);
}

/* Debugging reads its objects without a lock. */
CASE(nothing_is_unmapped_below_a_shadow)
{
    free_at_the_end(200);
    must(space_grow(&space.shadow, 1));
    os_clear();
    arena_trim(large());
    must_be(os_count(OS_UNMAP), 0);
}

/* ---- guards ---- */

CASE(guards_between_groups_of_slabs)
{
    bool zeroed;
    guard_on = true;
    start_region(0, 0);
    for (int i = 0; i < 100; i++) {
        uint32_t slices = i % 3 ? 1 : 4, slice = region_alloc_slab(0, slices, &zeroed);
        must(slice != SLICE_NONE);
        must(guard_from(slice) == guard_from(slice + slices - 1) && slice + slices - 1 != guard_from(slice));
    }
    uint32_t guards = 0;
    for (uint32_t slice = GUARD_GROUP - 1; slice < slabs()->frontier; slice += GUARD_GROUP, guards++) {
        must_be(slice_at(slice)->kind, SLICE_GUARD);
        must(os_covered(OS_CLOSE, slice_address(slice), SLICE_SIZE));
    }
    must(guards > 10);
    must_be(os_count(OS_CLOSE), guards);
    must_be(region_alloc_slab(0, GUARD_GROUP, &zeroed) != SLICE_NONE,
            1); /* too long for a group: among large blocks */
    must_be(arena_index(region_alloc_slab(0, GUARD_GROUP, &zeroed)), ARENA_LARGE);
    check_arenas();
}

CASE(large_blocks_have_no_guards_between_them)
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

/* The rest of an extent is free, and used, although slabs have guards; where guards lie in it, it is given up. */
CASE(rests_of_extents_beside_guards)
{
    guard_on = true;
    start_region(0, 0);
    must_be(arena_take_frontier(large(), 10, 1), CHUNK);
    arena_take_frontier(slabs(), 1, 1);
    while (arena_take_frontier(slabs(), 8, 1) < CHUNK) { /* until there is a second extent of slabs */
    }
    must_be(arena_take_frontier(large(), CHUNK, 1), 3 * CHUNK);
    must_be(arena_take_free(large(), CHUNK - 10, 1), CHUNK + 10);
}

CASE(guards_of_each_node)
{
    bool zeroed;
    guard_on = true;
    numa.count = 2;
    start_region(0, 0);
    for (int i = 0; i < 40; i++) {
        uint32_t slice = region_alloc_slab(1, 1, &zeroed);
        must_be(region_node(slice), 1);
        must(slice != guard_from(slice));
    }
    const struct arena *arena = slab_arena(1);
    must(os_covered(OS_CLOSE, slice_address(guard_from(arena->start)), SLICE_SIZE));
}

/* Each guard splits a mapping, and of those a process has a number. */
CASE(guards_end_where_mappings_do)
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

CASE(a_guard_that_is_refused_stays_open)
{
    bool zeroed;
    guard_on = true;
    start_region(0, 0);
    os_refuse(OS_CLOSE, 1, 1);
    for (int i = 0; i < 45; i++)
        must(region_alloc_slab(0, 1, &zeroed) != SLICE_NONE);
    must(!os_entry(OS_CLOSE, 0)->done && os_entry(OS_CLOSE, 1)->done);
    must_be(os_entry(OS_CLOSE, 1)->at, slice_address(2 * GUARD_GROUP - 1));
}
