/*
 * The region by itself: what it hands out and takes back, and what it returns to the system, when and in which order.
 * The clock is that of os.h.
 */
#include "layer.h"
#include "slices.h"
#include "memory/region/purge.h"
#include "memory/region/state.h"

#define DECAY 1000u
#define CHUNK 512u

static uint64_t warm(enum arena_kind kind)
{
    return warm_of(kind);
}

static void pass(uint32_t ms)
{
    os_now_ms += ms;
}

/* ---- handing out and taking back ---- */

CASE(memory_is_known_to_be_zeroed_once)
{
    start_region(0, DECAY);
    uint32_t slice = block(8);
    must(zeroed);
    memset(slice_address(slice), 1, 8 * SLICE_SIZE);
    region_free(slice);
    must_be(warm(ARENA_LARGE), 8);
    must_be(block(8), slice);
    must(!zeroed);
    must_be(warm(ARENA_LARGE), 0);
    region_free(slice);
    must_be(region_purge(true), 8 * SLICE_SIZE);
    must_be(block(8), slice);
    must(zeroed && !*(char *)slice_address(slice));
}

CASE(both_kinds_are_counted)
{
    start_region(0, DECAY);
    uint32_t a = slab(4), b = block(10);
    must_be(region_stats.slab_slices, 4);
    must_be(region_stats.large_slices, 10);
    must_be(region_stats.large_blocks, 1);
    must_be(region_in_use(), 14);
    must(arena_index(a) != arena_index(b));
    region_free(a);
    region_free(b);
    must_be(region_in_use(), 0);
    must_be(region_stats.large_blocks, 0);
    must_be(region_stats.large_alloc + region_stats.large_free, 2);
    must_be(region_stats.warm_slices, 14);
}

CASE(a_kind_helps_out_where_the_other_is_full)
{
    start_region(8 * MIB, DECAY);
    uint32_t first = block(8);
    region_free(first);
    uint32_t n = 0;
    while (region_alloc_slab(0, 1, &zeroed) != SLICE_NONE)
        n++;
    must_be(n, space.slice_most - RESERVE_SLICES);
    must_be(region_alloc(ARENA_LARGE, 1, 1, &zeroed), SLICE_NONE);
}

CASE(refused_memory_leaves_the_accounts)
{
    start_region(0, DECAY);
    block(8);
    struct region_stats before = region_stats;
    os_refuse(OS_EXTEND, 1, OS_ALWAYS);
    must_be(region_alloc(ARENA_LARGE, 1000, 1, &zeroed), SLICE_NONE);
    must(!zeroed && !memcmp(&before, &region_stats, sizeof(before)));
    os_grant();
    block(1000);
}

CASE(handlers_have_a_reserve)
{
    start_region(0, DECAY);
    slab(1);
    uint32_t slices[RESERVE_SLICES];
    BELOW_HANDLER(LOCK_REGION, {
        must_be(region_alloc(ARENA_LARGE, 2, 1, &zeroed), SLICE_NONE);
        must_be(region_alloc(ARENA_LARGE, 1, 2, &zeroed), SLICE_NONE);
        for (unsigned i = 0; i < RESERVE_SLICES; i++)
            must((slices[i] = region_alloc(i % 2 ? ARENA_SLAB : ARENA_LARGE, 1, 1, &zeroed)) != SLICE_NONE &&
                 !zeroed);
        must_be(region_alloc(ARENA_LARGE, 1, 1, &zeroed), SLICE_NONE);
    });
    must_be(region_stats.reserve_slices, RESERVE_SLICES);
    slab(1); /* which counts them, and fills the reserve */
    must_be(region_stats.slab_slices, 2 + RESERVE_SLICES / 2);
    must_be(region_stats.large_slices, RESERVE_SLICES / 2);
    for (unsigned i = 0; i < RESERVE_SLICES; i++)
        region_free(slices[i]);
    must_be(region_stats.large_slices, 0);
    BELOW_HANDLER(LOCK_REGION, must(region_alloc(ARENA_LARGE, 1, 1, &zeroed) != SLICE_NONE));
}

CASE(what_handlers_free_is_put_aside)
{
    start_region(0, DECAY);
    uint32_t a = block(3), b = block(5);
    block(1);
    BELOW_HANDLER(LOCK_REGION, {
        region_free(a);
        region_free(b);
    });
    must_be(region_stats.large_slices, 9);
    uint32_t c = block(2); /* of the two that are collected */
    must_be(region_stats.large_slices, 3);
    must(c >= a && c < b + 5);
}

CASE(blocks_change_their_length_in_place)
{
    start_region(0, DECAY);
    uint32_t a = block(10), b = block(1);
    must(!region_resize(a, 11));
    must(region_resize(a, 4));
    must_be(warm(ARENA_LARGE), 6);
    must(region_resize(a, 8));
    must_be(warm(ARENA_LARGE), 2);
    must_be(slice_at(a + 8)->kind, SLICE_FREE);
    must_be(slice_at(a + 8)->length, 2);
    must(region_resize(a, 10) && !region_resize(a, 11));
    must(region_resize(b, 100)); /* at the frontier */
    must_be(region_stats.large_slices, 110);
    os_refuse(OS_EXTEND, 1, OS_ALWAYS);
    must(!region_resize(b, 400));
    must_be(slice_at(b)->length, 100);
    BELOW_HANDLER(LOCK_REGION, must(!region_resize(a, 4)));
}

CASE(slabs_of_nodes)
{
    numa.count = 3;
    start_region(0, DECAY);
    uint32_t a = region_alloc_slab(1, 1, &zeroed), b = region_alloc_slab(2, 1, &zeroed), c = block(1);
    must_be(region_node(a), 1);
    must_be(region_node(b), 2);
    must_be(region_node(c), 0);
    for (unsigned i = 0; i < os_count(OS_PLACE); i++) { /* each range once, and none of large blocks */
        const struct os_entry *entry = os_entry(OS_PLACE, i);
        must_be(region_node((uint32_t)slice_of((void *)entry->at)), entry->node);
        must(arena_index((uint32_t)slice_of((void *)entry->at)) != ARENA_LARGE);
    }
    must(os_covered(OS_PLACE, slice_address(a), SLICE_SIZE) && os_covered(OS_PLACE, slice_address(b), SLICE_SIZE));
    region_free(a);
    must_be(region_alloc_slab(1, 1, &zeroed), a);
    must(region_alloc_slab(0, 1, &zeroed) < CHUNK);
}

/* Where the address space of a node's slabs is used up, those of the next nodes help, and then the large blocks'. */
CASE(nodes_help_each_other)
{
    numa.count = 2;
    start_region(8 * MIB, DECAY);
    uint32_t of[3] = {0};
    for (uint32_t slice; (slice = region_alloc_slab(1, 1, &zeroed)) != SLICE_NONE;)
        of[arena_index(slice)]++;
    must(of[2] > 32 && of[0] > 8);
    must_be(of[0] + of[1] + of[2], space.slice_most - RESERVE_SLICES);
}

/* ---- returning memory to the system ---- */

/* Three blocks that are freed one after another, 100 ms apart, with one in use behind each. */
static uint32_t blocks[3];
static void free_three(void)
{
    for (int i = 0; i < 3; i++) {
        blocks[i] = block(2);
        block(1);
    }
    static const int order[] = {1, 2, 0};
    for (int i = 0; i < 3; i++) {
        region_free(blocks[order[i]]);
        pass(100);
    }
    os_clear();
}

CASE(all_is_returned)
{
    start_region(0, DECAY);
    free_three();
    region_free(slab(3));
    must_be(region_purge(true), 9 * SLICE_SIZE);
    must_be(region_stats.warm_slices, 0);
    must_be(region_stats.purged_slices, 9);
    for (int i = 0; i < 3; i++)
        must(os_covered(OS_DISCARD, slice_address(blocks[i]), 2 * SLICE_SIZE));
    must_be(region_purge(true), 0);
}

CASE(the_old_is_returned_first)
{
    start_region(0, DECAY);
    free_three();
    pass(DECAY - 250);
    must_be(region_purge(false), 2 * SLICE_SIZE);
    must_be(os_count(OS_DISCARD), 1);
    must_be(os_entry(OS_DISCARD, 0)->at, slice_address(blocks[1]));
    pass(200);
    must_be(region_purge(false), 4 * SLICE_SIZE);
    must_be(os_entry(OS_DISCARD, 1)->at, slice_address(blocks[2]));
    must_be(os_entry(OS_DISCARD, 2)->at, slice_address(blocks[0]));
}

CASE(both_kinds_in_order_of_age)
{
    start_region(0, DECAY);
    uint32_t b = slab(1);
    free_three();
    region_free(b);
    pass(10 * DECAY);
    must_be(region_purge(false), 7 * SLICE_SIZE);
    must_be(os_entry(OS_DISCARD, 3)->at, slice_address(b));
}

CASE(without_decay_nothing_is_too_old)
{
    start_region(0, 0);
    free_three();
    pass(1000000);
    must_be(region_purge(false), 0);
    must_be(warm(ARENA_LARGE), 6);
}

CASE(the_age_counts_from_the_last_free)
{
    start_region(0, DECAY);
    uint32_t a = block(2), b = block(2);
    block(1);
    region_free(a);
    pass(DECAY - 1);
    region_free(b); /* joins it */
    pass(10);
    must_be(region_purge(false), 0);
    pass(DECAY);
    must_be(region_purge(false), 4 * SLICE_SIZE);
}

/* The floor: so much stays, whatever its age. */
CASE(what_the_user_chose_to_keep_stays)
{
    start_region(0, DECAY);
    region_retain(4 * SLICE_SIZE, true);
    free_three();
    must_be(region_stats.warm_slices, 4); /* the surplus went */
    pass(10 * DECAY);
    must_be(region_purge(false), 0);
    region_purge_idle(true);
    must_be(region_stats.warm_slices, 4);
    must_be(region_purge(true), 4 * SLICE_SIZE); /* malloc_trim() */
}

/* As if all of what may be learned for large blocks had been missed. */
static void learn_all(void)
{
    struct retain *keep = &region.retain[ARENA_LARGE];
    keep->now = keep->most;
    keep->changed_ms = os_now_ms;
}

CASE(what_was_learned_stays_unless_all_is_to_go)
{
    start_region(0, DECAY);
    region_free(block(1));        /* from here on the peak is noted */
    uint32_t slice = block(1610); /* more than what is learned with such a peak, and less than the limit */
    learn_all();
    region_free(slice);
    must_be(warm(ARENA_LARGE), 1610);
    region_purge_idle(false);
    must_be(warm(ARENA_LARGE), retain_learned(&region.retain[ARENA_LARGE]));
    must(warm(ARENA_LARGE) > 1590);
    region_purge_idle(true);
    must_be(warm(ARENA_LARGE), 0);
}

/* A span that the system refuses to take stays what it was: dirty, found again, and counted. */
CASE(a_refused_return_changes_nothing)
{
    start_region(0, DECAY);
    free_three();
    os_refuse(OS_DISCARD, 1, 1);
    must_be(region_purge(true), 0);
    must_be(os_count(OS_DISCARD), 1); /* not again at once */
    must_be(warm(ARENA_LARGE), 6);
    must_be(region_stats.purged_slices, 0);
    must_be(region.leaving[ARENA_LARGE], 0);
    for (int i = 0; i < 3; i++)
        must_be(slice_at(blocks[i])->kind, SLICE_FREE);
    must_be(region_purge(true), 6 * SLICE_SIZE);
}

static uint32_t to_free;

static void free_a_neighbour(enum os_call call, void *at, size_t size)
{
    (void)at, (void)size;
    if (call != OS_DISCARD || !to_free)
        return;
    uint32_t slice = to_free;
    to_free = 0;
    region_free(slice);
    must_be(region_alloc(ARENA_LARGE, 4, 1, &zeroed) == slice - 2, 0); /* not the span that is leaving */
}

/* A span is busy while the system is called, and its neighbours are joined to it afterwards. */
CASE(neighbours_of_a_leaving_run)
{
    start_region(0, DECAY);
    uint32_t a = block(2), b = block(2);
    block(1);
    region_free(a);
    pass(100);
    to_free = b;
    os_hook = free_a_neighbour;
    region_purge(true);
    must_be(slice_at(a)->kind, SLICE_FREE);
    must_be(slice_at(a)->length, 4);
    must_be(warm(ARENA_LARGE), 0);
}

/* ---- the bound at a free ---- */

CASE(the_surplus_is_returned_at_the_free)
{
    start_region(0, DECAY);
    region_free(block(32));
    must_be(os_count(OS_DISCARD), 0); /* 2 MiB may stay */
    region_free(block(320));
    must(os_count(OS_DISCARD) > 0);
    must(warm(ARENA_LARGE) <= 32);
}

/* Of a span of large blocks its end goes: requests are met from its start. */
CASE(large_blocks_return_their_end)
{
    start_region(0, DECAY);
    uint32_t slice = block(320);
    block(1);
    region_free(slice);
    const struct os_entry *entry = os_entry(OS_DISCARD, 0);
    must_be(entry->at + entry->size, slice_address(slice + 320));
    must(!region_slice_clean(slice) && region_slice_clean(slice + 319));
}

/* Where no huge page is whole, single slices go, but only once a huge page more than the limit is free. */
CASE(scattered_slabs_are_bounded_too)
{
    static uint32_t slices[640];
    start_region(0, DECAY);
    for (int i = 0; i < 640; i++)
        slices[i] = slab(1);
    uint64_t most = 0;
    for (int i = 0; i < 640; i += 2) {
        region_free(slices[i]);
        uint64_t limit = purge_limit(ARENA_SLAB);
        if (os_count(OS_DISCARD) == 0 && warm(ARENA_SLAB) > limit && warm(ARENA_SLAB) - limit > most)
            most = warm(ARENA_SLAB) - limit;
    }
    must(os_count(OS_DISCARD) > 0);
    must(most >= HUGE_PAGE_SLICES - 1 && most <= HUGE_PAGE_SLICES + 16);
    must(warm(ARENA_SLAB) <= purge_limit(ARENA_SLAB) + HUGE_PAGE_SLICES + 16);
}

CASE(what_is_in_use_raises_the_limit)
{
    start_region(0, DECAY);
    must_be(purge_limit(ARENA_SLAB), 32);
    block(1600);
    must_be(purge_limit(ARENA_SLAB), 132);
    region_retain(200 * SLICE_SIZE, true);
    must_be(purge_limit(ARENA_SLAB), 200);
}

/* After the end of a burst, until more is in use than then. */
CASE(less_stays_after_a_burst)
{
    start_region(0, DECAY);
    block(1600);
    must_be(purge_limit(ARENA_SLAB), 132);
    region_purge_fallen();
    must_be(purge_limit(ARENA_SLAB), 57);
    slab(1);
    must_be(purge_limit(ARENA_SLAB), 132);
}

/* Without decay, what is free below the limit stays. */
CASE(without_decay_a_burst_leaves_what_the_limit_allows)
{
    start_region(0, 0);
    block(1600);
    region_free(block(100));
    os_clear();
    region_purge_fallen();
    must_be(os_count(OS_DISCARD), 0);
    must_be(warm(ARENA_LARGE), 100);
    must_be(purge_limit(ARENA_SLAB), 132);
}

/* A limit that is learned: what went back and is wanted again within half a second stays the next times. */
CASE(what_is_missed_soon_stays)
{
    start_region(0, DECAY);
    for (int i = 0; i < 6; i++) {
        region_free(block(600));
        pass(20);
    }
    os_clear();
    region_free(block(600));
    must_be(os_count(OS_DISCARD), 0);
    must_be(warm(ARENA_LARGE), 600);
}

/* ---- payment ---- */

/* New memory of one kind is paid for with memory of the other that has been free for 8 ms. */
CASE(new_memory_is_paid_for)
{
    start_region(0, DECAY);
    region_free(block(30));
    pass(4);
    slab(20);
    must_be(warm(ARENA_LARGE), 30); /* too young */
    pass(4);
    slab(20);
    must_be(warm(ARENA_LARGE), 10);
    must_be(region_stats.purged_slices, 20);
}

CASE(little_is_not_paid_for)
{
    start_region(0, DECAY);
    region_free(block(30));
    pass(100);
    slab(15);
    must_be(warm(ARENA_LARGE), 30);
    slab(1); /* 16 in all */
    must_be(warm(ARENA_LARGE), 14);
}

/* A kind does not pay for itself with what it has learned to keep. */
CASE(what_was_learned_is_no_payment)
{
    start_region(0, DECAY);
    uint32_t slice = block(600);
    block(1);
    learn_all();
    region_free(slice);
    pass(100);
    must_be(warm(ARENA_LARGE), 600);
    block(700);
    must_be(region_stats.purged_slices, 0);
    slab(100); /* but for the other kind it does */
    must_be(region_stats.purged_slices, 100);
}

/* ---- staged memory ---- */

static bool writable_slice(uint32_t slice)
{
    return writable(slice_address(slice)) && writable((char *)slice_address(slice) + SLICE_SIZE - 1);
}

CASE(staged_blocks_are_committed_until_they_are_returned)
{
    start_staged_region(0, DECAY);
    uint32_t a = block(3), b = block(2), c = slab(1);
    for (uint32_t i = 0; i < 3; i++)
        must(writable_slice(a + i));
    must(writable_slice(b) && !writable(slice_address(c))); /* slabs are committed by their own layer */
    region_free(a);
    must(writable_slice(a)); /* until it is returned */
    must_be(region_purge(true), 3 * SLICE_SIZE);
    for (uint32_t i = 0; i < 3; i++)
        must(!writable(slice_address(a + i)));
    must(writable_slice(b));
    must_be(block(3), a);
    must(zeroed && writable_slice(a + 2));
}

/* A process that was not staged at the start is from the first refusal of writable memory on. */
CASE(memory_is_staged_from_a_refusal_on)
{
    start_region(0, DECAY);
    os_stages = true;
    uint32_t a = block(1);
    must(!vm_staged);
    os_refuse(OS_EXTEND, 1, 2); /* with a step beyond and without */
    uint32_t b = block(100);
    must(vm_staged && writable_slice(a) && writable_slice(b) && writable_slice(b + 99));
    region_free(a);
    must_be(region_purge(true), SLICE_SIZE);
    must(!writable(slice_address(a)) && block(1) == a && writable_slice(a));
}

CASE(committed_slices_are_taken_first)
{
    start_staged_region(0, DECAY);
    uint32_t a = block(1);
    block(1);
    uint32_t b = block(1);
    block(1);
    region_free(b);
    must_be(region_purge(true), SLICE_SIZE);
    region_free(a);
    must_be(block(1), a); /* although b lies in the same bin */
    must_be(block(1), b);
}

CASE(a_refused_commit_leaves_the_accounts)
{
    start_staged_region(0, DECAY);
    uint32_t a = block(8);
    block(1);
    struct region_stats before = region_stats;
    os_refuse(OS_COMMIT, 1, OS_ALWAYS);
    must_be(region_alloc(ARENA_LARGE, 20, 1, &zeroed), SLICE_NONE);
    os_grant();
    must(!zeroed && !memcmp(&before, &region_stats, sizeof(before)));
    must(writable_slice(block(20)));
    region_free(a);
    must(writable_slice(a) && region_purge(true) == 8 * SLICE_SIZE);
}

CASE(a_staged_block_grows_in_place)
{
    start_staged_region(0, DECAY);
    uint32_t a = block(4);
    must(region_resize(a, 9));
    for (uint32_t i = 0; i < 9; i++)
        must(writable_slice(a + i));
    os_refuse(OS_COMMIT, 1, 1);
    must(!region_resize(a, 30));
    must_be(slice_at(a)->length, 9);
    must(region_resize(a, 30) && writable_slice(a + 29));
    must_be(region_stats.large_slices, 30);
}

CASE(a_long_run_is_only_mapped_if_it_could_be_committed)
{
    start_staged_region(0, DECAY);
    block(1);
    uint32_t mapped = region_mapped();
    os_refuse(OS_GRANTS, 1, OS_ALWAYS);
    must_be(region_alloc(ARENA_LARGE, 400, 1, &zeroed), SLICE_NONE);
    must_be(region_mapped(), mapped);
    os_grant();
    must(writable_slice(block(400)));
}

CASE(nothing_is_learned_after_a_refusal)
{
    start_staged_region(0, DECAY);
    block(1);
    os_refuse(OS_COMMIT, 1, OS_ALWAYS);
    must_be(region_alloc(ARENA_LARGE, 1, 1, &zeroed), SLICE_NONE);
    os_grant();
    for (int i = 0; i < 20; i++) { /* a swing that would be learned */
        uint32_t a = block(256);
        pass(10);
        region_free(a);
        pass(10);
    }
    must_be(region.retain[ARENA_LARGE].now, region.retain[ARENA_LARGE].least);
    must(warm(ARENA_LARGE) < 40);
}
