/* What each CPU has, by itself: the words of slots, counters, domains and the span cache. */
#include "slots.h"
#include "platform/config/config.h"
#include "platform/os/cpu.h"
#include "cache/slot/span_cache.h"

/* ---- words of slots ---- */

#define ID   word_id(CACHE_USERS)
#define PUSH push_id(ID, false)
static const struct end none, claimed = {END_CLAIMED};

static uint64_t *top_in(unsigned slot)
{
    return &slot_words(slot, ID)->top;
}

CASE(without_rseq)
{
    start(32);
    must_be(slot_mode, SHEAF_MODE_LOCK);
    must_be(slot_reachable(64), 16); /* four for each CPU */
    must(slot_writable(15) && !slot_writable(16));
}

CASE(as_many_slots_as_are_granted)
{
    must(space_init(32, 0));
    os_refuse(OS_OPEN, 1, OS_ALWAYS);
    slot_init(false, false, false, false, FOLD);
    must_be(slot_reachable(64), 4);
}

CASE(a_slot_without_a_sheaf_has_nothing)
{
    start(16);
    must(!slot_pop(ID, false) && !slot_pop(ID, true) && !slot_push(PUSH, object(1)));
    must_be(*top_in(0), 0);
    must(!slot_pop(word_id(0), false));
}

CASE(two_ends)
{
    start(16);
    struct sheaf *pops = filled(5, 3), *pushes = filled(5, 3);
    must(slot_install(0, ID, 0, top_of(end_of(pops), end_of(pushes))));
    for (unsigned i = 3; i--;)
        must(slot_pop(ID, false) == object(i));
    must(!slot_pop(ID, false));
    must_be(end_holds(top_pop_end(*top_in(0))), 0);
    must(slot_push(PUSH, object(10)) && slot_push(PUSH, object(11)));
    must(!slot_push(PUSH, object(12)));
    must_be(end_holds(top_push_end(*top_in(0))), 5);
    must(pushes->objects[4] == object(11));
    run_on(1);
    must(!slot_pop(ID, false) && !slot_push(PUSH, object(12))); /* the sheaves are slot 0's */
}

/* The fast path of free sees the last two objects. */
CASE(a_double_free_takes_the_slow_path)
{
    start(16);
    struct sheaf *sheaf = filled(5, 0);
    must(slot_install(0, ID, 0, top_of(none, end_of(sheaf))));
    must(slot_push(PUSH, object(1)) && !slot_push(PUSH, object(1)));
    must(slot_push(PUSH, object(2)) && !slot_push(PUSH, object(1)) && !slot_push(PUSH, object(2)));
    must(slot_push(PUSH, object(3)) && slot_push(PUSH, object(1))); /* too long ago */
}

CASE(lifo_words_count_their_pops)
{
    start(16);
    struct sheaf *sheaf = filled(5, 2);
    must(slot_install(0, ID, 0, top_of_lifo(end_of(sheaf), slot_fold_start)));
    for (unsigned i = 0; i < FOLD - 1; i++) {
        must(slot_pop(ID, true) == object(1));
        must(slot_push(push_id(ID, true), object(1)));
        must_be(top_pops(*top_in(0)) - slot_fold_start, i + 1);
    }
    must(top_full_count(*top_in(0)));
    must(!slot_pop(ID, true)); /* the slow path folds the count */
    must_be(end_holds(top_pop_end(*top_in(0))), 2);
}

CASE(a_word_that_changed_is_not_installed_to)
{
    start(16);
    struct sheaf *a = filled(5, 3), *b = filled(5, 3);
    uint64_t top = top_of(end_of(a), none);
    must(slot_install(0, ID, 0, top));
    must(!slot_install(0, ID, 0, top_of(end_of(b), none)));
    must(slot_pop(ID, false) == object(2));
    must(!slot_install(0, ID, top, 0));
    must_be(end_holds(top_pop_end(*top_in(0))), 2);
}

CASE(a_held_end_serves_no_operation)
{
    start(16);
    *top_in(0) = top_of(claimed, claimed);
    must(top_claimed(*top_in(0)));
    must(!slot_pop(ID, false) && !slot_pop(ID, true) && !slot_push(PUSH, object(1)));
    must_be(*top_in(0), top_of(claimed, claimed));
    must_be(end_holds(claimed) + end_holds(none), 0);
}

CASE(ends_change_over)
{
    start(16);
    struct sheaf *emptier = filled(5, 0), *fuller = filled(5, 4);
    uint64_t top = top_of(end_of(emptier), end_of(fuller));
    struct attached_sheaf *pops = sheaf_attached(emptier), *pushes = sheaf_attached(fuller);
    pushes->pushes = 7;
    pushes->total.bits = 4;
    must(slot_install(0, ID, 0, top));
    must(!slot_exchange(0, ID, top + 8, pushes, pops, 3)); /* it has changed */
    must(slot_exchange(0, ID, top, pushes, pops, 3));
    must_be(pops->pushes, 10);
    must_be(pops->total.bits, 4);
    must_be(top_pop_end(*top_in(0)).at, top_push_end(top).at);
    must_be(top_push_end(*top_in(0)).at, top_pop_end(top).at);
    must(slot_pop(ID, false) == object(3));
    pops->pushes = UINT32_MAX - 2;
    must(!slot_exchange(0, ID, *top_in(0), pops, pushes, 3)); /* the account is full */
}

CASE(a_slot_that_is_shut)
{
    start(16);
    struct sheaf *sheaf = filled(5, 3);
    uint64_t top = top_of(end_of(sheaf), end_of(sheaf));
    must(slot_install(0, ID, 0, top));
    must(slot_shut(0) && !slot_shut(0));
    must(!slot_pop(ID, false) && !slot_push(PUSH, object(9)) && !slot_install(0, ID, top, 0));
    must(!slot_exchange(0, ID, top, sheaf_attached(sheaf), sheaf_attached(sheaf), 0));
    run_on(1);
    must(slot_install(1, ID, 0, top)); /* another slot is open */
    must(slot_pop(ID, false) == object(2));
    run_on(0);
    slot_open(0);
    must_be(*top_in(0), top);
    must(slot_pop(ID, false) == object(2));
}

CASE(the_sibling_of_the_slots_node)
{
    start(16);
    struct sheaf *sheaf = filled(5, 3);
    must(slot_install(0, word_id(CACHE_USERS + 2), 0, top_of(end_of(sheaf), none)));
    must(!slot_pop_local(ID, false));
    slot_head(0)->local = (uint32_t)(SLOT_WORD_AT(2) - SLOT_WORD_AT(0));
    must(slot_pop_local(ID, false) == object(2));
}

CASE(slots_of_two_ends_do_not_touch)
{
    start(16);
    for (unsigned slot = 0; slot < 16; slot++)
        for (unsigned number = CACHE_FIRST; number < CACHE_MAX; number++) {
            struct slot_words *words = slot_words(slot, word_id(number));
            must(!cache_gap(number) || words->top == 0);
            must_be(word_id_number(word_id(number)), number);
            must_be(push_id_number(push_id(word_id(number), false)), number);
            must_be(push_id_number(push_id(word_id(number), true)), number);
            words->top = slot * CACHE_MAX + number;
        }
    for (unsigned slot = 0; slot < 16; slot++)
        for (unsigned number = CACHE_FIRST; number < CACHE_MAX; number++)
            must_be(slot_words(slot, word_id(number))->top, slot * CACHE_MAX + number);
    must_be(*sheaf_entry(none), sheaf_full_mark());
    must_be(*sheaf_entry(claimed), sheaf_full_mark());
    must(!sheaf_entry(none)[-1] && !sheaf_entry(claimed)[-1]);
}

/* ---- counting, domains ---- */

static uint64_t counted(unsigned number, enum slot_counter which)
{
    uint64_t sum = 0;
    for (unsigned slot = 0; slot < slot_top; slot++)
        sum += *counter_at(slot, number, which);
    return sum;
}

CASE(slots_count_for_themselves)
{
    start(16);
    must(space_grow_counters(301));
    must_be(slot_top, 0);
    run_on(3);
    must_be(slot_counting(), 3);
    must_be(slot_top, 4);
    count(3, 300, COUNT_alloc_slowpath, 5);
    run_on(1);
    count(slot_counting(), 300, COUNT_alloc_slowpath, 2);
    must_be(slot_top, 4);
    must_be(*counter_at(3, 300, COUNT_alloc_slowpath), 5);
    must_be(counted(300, COUNT_alloc_slowpath), 7);
    must_be(counted(300, COUNT_free_slowpath) + counted(301, COUNT_alloc_slowpath), 0);
}

CASE(a_slot_without_memory_counts_in_the_first)
{
    start(32);
    run_on(12);
    atomic_store(&space.slots_open, 4); /* as if the others had not been opened yet */
    os_refuse(OS_OPEN, 1, 1);
    must_be(slot_counting(), 0);
    must(!slot_writable(12));
    must_be(slot_counting(), 12);
    must(slot_writable(12));
}

CASE(cpus_of_a_cache_are_a_domain)
{
    cpu_allowed_count = os_cpus = 64;
    start(64);
    for (os_cpu = 0; os_cpu < 32; os_cpu++)
        must_be(slot_domain(), os_cpu / 4);
    for (os_cpu = 32; os_cpu < 64; os_cpu++)
        must(slot_domain() < DOMAINS); /* more caches than domains share them */
    os_cpu = 5;
    must_be(slot_domain(), 1);
}

CASE(few_cpus_are_one_domain)
{
    os_llc_cpus = 1;
    cpu_allowed_count = os_cpus = 8;
    start(64);
    for (os_cpu = 0; os_cpu < 8; os_cpu++)
        must_be(slot_domain(), 0);
}

/* ---- the span cache ---- */

static uint32_t span(uint32_t slices)
{
    bool zeroed;
    uint32_t slice = region_alloc(ARENA_LARGE, slices, 1, &zeroed);
    must(slice != SLICE_NONE);
    slice_at(slice)->kind = SLICE_CLOSED;
    return slice;
}

CASE(one_run_of_each_length_in_each_slot)
{
    start(16);
    span_cache_init(64 * MIB, true);
    uint32_t a = span(1), b = span(1), c = span(4);
    must_be(span_cache_take(1), SLICE_NONE);
    must(span_cache_put(a) && !span_cache_put(b) && span_cache_put(c));
    must(!span_cache_put(span(5)) && span_cache_take(5) == SLICE_NONE);
    must_be(span_cache_take(2), SLICE_NONE);
    run_on(1);
    must_be(span_cache_take(1), SLICE_NONE);
    must(span_cache_put(b));
    must_be(span_cache_totals().slices, 6);
    must_be(span_cache_totals().spans, 3);
    run_on(0);
    must_be(span_cache_take(1), a);
    must_be(slice_at(a)->kind, SLICE_LARGE);
    must_be(span_cache_take(1), SLICE_NONE);
    must_be(span_cache_take(4), c);
    must_be(span_cache_totals().taken, 2);
    must_be(span_cache_totals().spans, 1);
}

CASE(spans_of_the_cache_go_back)
{
    start(16);
    span_cache_init(64 * MIB, true);
    slot_raise_top(1);
    for (unsigned slot = 2; slot--;) {
        run_on(slot);
        for (uint32_t slices = 1; slices <= SPAN_CACHE_LENGTHS; slices++)
            must(span_cache_put(span(slices)));
    }
    must(span_cache_take(2) != SLICE_NONE);
    must_be(region_stats.large_slices, 20);
    span_cache_flush();
    must_be(region_stats.large_slices, 2);
    must_be(span_cache_totals().slices, 0);
    must_be(span_cache_totals().taken, 1); /* the flush keeps the count */
    must_be(span_cache_take(2), SLICE_NONE);
}

CASE(no_span_cache_where_little_may_stay)
{
    start(16);
    span_cache_init(10 * SLICE_SIZE - 1, true);
    must(!span_cache_on && !span_cache_put(span(1)));
    span_cache_init(10 * SLICE_SIZE, true);
    must(span_cache_on && span_cache_put(span(1)));
    span_cache_keep(0);
    must(!span_cache_on);
    must_be(span_cache_take(1), SLICE_NONE);
    must_be(span_cache_totals().spans, 0);
    span_cache_init(64 * MIB, false);
    must(!span_cache_on);
}
