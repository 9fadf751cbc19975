#include "memory/region/huge.h"
#include "memory/region/arena.h"
#include "memory/region/region.h"
#include "memory/space/locks.h"
#include "platform/os/clock.h"
#include "platform/os/vm.h"
#include "platform/os/hooks.h"

#define HUGE_AFTER  256   /* slices, 16 MiB: slabs get no huge pages before they use as much */
#define LARGE_PLAIN 1024u /* slices: large blocks get no huge pages in the first 64 MiB */
#define PLAIN_MOST  1024u /* ranges advised against singly: each may split a mapping, and there may be 65530 */
#define SMALL_PAGES 768u  /* faults, 1.5 times those of a range of 2 MiB: what a huge page may cost */
#define SMALL_NS    1000u /* the least assumed cost of a fault of a small page */
#define SKIP_MOST   64u   /* ranges */

static _Atomic int asking;                  /* 0: not yet, 1: for everything that slabs grow into, -1: never */
static _Atomic uint32_t plain, huge;        /* ranges advised against; ranges advised to have huge pages */
static _Atomic uint32_t skip_from, skip_to; /* slices that get small pages when they are mapped */

void huge_init(bool wanted)
{
    atomic_store(&asking, wanted ? 0 : -1);
}

/* The advice for whole mappings takes one call for each of them, not one for each range. */
void huge_set(bool wanted)
{
    if (!lock_acquire(lock_of(LOCK_REGION)))
        return;
    if (wanted != (atomic_load(&asking) >= 0)) {
        atomic_store(&asking, wanted ? 0 : -1);
        for (uint32_t huge_page = 0; !wanted && huge_page < region_end(); huge_page += HUGE_PAGE_SLICES)
            slice_at(huge_page)->huge_advice = HUGE_NOT_ADVISED;
        if (!wanted) {
            atomic_store(&huge, 0);
            atomic_store(&plain, 0);
            vm_advise_huge(slice_address(0), (size_t)region_end() << SLICE_SHIFT, false);
        }
    }
    lock_release(lock_of(LOCK_REGION));
}

/* Gives small pages to those ranges in [from, to) for which huge pages were requested. */
static void skip_huge_pages(uint32_t from, uint32_t to)
{
    for (uint32_t huge_page = from; huge_page < to && huge_page < region_end(); huge_page += HUGE_PAGE_SLICES)
        if (slice_at(huge_page)->huge_advice == HUGE_ADVISED) {
            slice_at(huge_page)->huge_advice = HUGE_ADVISED_AGAINST;
            atomic_fetch_sub_explicit(&huge, 1, memory_order_relaxed);
            atomic_fetch_add_explicit(&plain, 1, memory_order_relaxed);
            vm_advise_huge(slice_address(huge_page), (size_t)HUGE_PAGE_SLICES << SLICE_SHIFT, false);
        }
}

static void advise_against(uint32_t from, uint32_t to)
{
    if (from < to)
        vm_advise_huge(slice_address(from), (size_t)(to - from) << SLICE_SHIFT, false);
}

static void ask_for(uint32_t from, uint32_t to)
{
    uint32_t first = (uint32_t)round_up(from, HUGE_PAGE_SLICES);
    if (first + HUGE_PAGE_SLICES > to)
        return;
    vm_advise_huge(slice_address(first), (size_t)(to - first) << SLICE_SHIFT, true);
    for (uint32_t huge_page = first; huge_page + HUGE_PAGE_SLICES <= to; huge_page += HUGE_PAGE_SLICES) {
        atomic_fetch_add_explicit(&huge, slice_at(huge_page)->huge_advice == HUGE_NOT_ADVISED, memory_order_relaxed);
        slice_at(huge_page)->huge_advice = HUGE_ADVISED;
    }
}

/* Pages that another thread touches before the advice takes effect are small. */
void huge_grown(uint64_t in_use, const struct arena *arena)
{
    if (likely(in_use < HUGE_AFTER || atomic_load_explicit(&asking, memory_order_relaxed)))
        return;
    atomic_store_explicit(&asking, 1, memory_order_relaxed);
    ask_for(arena->frontier, arena->mapped);
}

/* Staged memory gets no advice: it would be lost with each range that is uncommitted, and then divide mappings. */
void huge_mapped(const struct arena *arena, uint32_t from, uint32_t to)
{
    if (unlikely(vm_staged))
        return;
    bool wanted = arena->slabs && atomic_load_explicit(&asking, memory_order_relaxed) > 0;
    if (!wanted) {
        uint64_t plain_to = arena->slabs ? to : (uint64_t)arena->start - arena->passed + LARGE_PLAIN;
        advise_against(from, plain_to < to ? (uint32_t)plain_to : to);
        return;
    }
    ask_for(from, to);
    uint32_t skip = atomic_load_explicit(&skip_to, memory_order_relaxed);
    if (from >= atomic_load_explicit(&skip_from, memory_order_relaxed) && from < skip)
        skip_huge_pages(from, skip < to ? skip : to);
}

void huge_unmapped(uint32_t from, uint32_t to)
{
    for (uint32_t huge_page = (uint32_t)round_up(from, HUGE_PAGE_SLICES); huge_page < to;
         huge_page += HUGE_PAGE_SLICES) {
        atomic_fetch_sub_explicit(&huge, slice_at(huge_page)->huge_advice == HUGE_ADVISED, memory_order_relaxed);
        atomic_fetch_sub_explicit(&plain, slice_at(huge_page)->huge_advice == HUGE_ADVISED_AGAINST,
                                  memory_order_relaxed);
        slice_at(huge_page)->huge_advice = HUGE_NOT_ADVISED;
    }
}

static uint64_t now_ns(void)
{
    return hooks.huge_clock ? hooks.huge_clock() : clock_thread_ns();
}

static uint64_t touch_ns(uint32_t slice)
{
    uint64_t begin = now_ns();
    *(volatile char *)slice_address(slice) = 0;
    return now_ns() - begin;
}

/*
 * Races are harmless: two threads that enter ranges at once may both skip ranges, or measure each other's cost.
 */
void huge_touch(uint32_t slice, uint32_t slices)
{
    static _Atomic uint32_t small_ns = SMALL_NS, skip = 1;
    uint32_t huge_page = (uint32_t)round_up(slice, HUGE_PAGE_SLICES);
    if (likely(huge_page >= slice + slices) || atomic_load_explicit(&asking, memory_order_relaxed) <= 0 ||
        vm_staged || slice_at(huge_page)->huge_advice == HUGE_NOT_ADVISED)
        return;
    uint64_t ns = touch_ns(huge_page);
    if (slice_at(huge_page)->huge_advice == HUGE_ADVISED_AGAINST) {
        uint32_t usual = atomic_load_explicit(&small_ns, memory_order_relaxed);
        uint32_t now = ns < 4ull * usual ? (uint32_t)ns : 4 * usual; /* limits the weight of outliers */
        now = now > SMALL_NS ? now : SMALL_NS;
        atomic_store_explicit(&small_ns, (3 * usual + now) / 4, memory_order_relaxed);
        return;
    }
    if (ns <= (uint64_t)SMALL_PAGES * atomic_load_explicit(&small_ns, memory_order_relaxed)) {
        atomic_store_explicit(&skip, 1, memory_order_relaxed);
        return;
    }
    uint32_t n = atomic_load_explicit(&skip, memory_order_relaxed);
    atomic_store_explicit(&skip, n < SKIP_MOST ? 2 * n : n, memory_order_relaxed);
    if (atomic_load_explicit(&plain, memory_order_relaxed) + n > PLAIN_MOST)
        return;
    uint32_t from = huge_page + HUGE_PAGE_SLICES, to = from + n * HUGE_PAGE_SLICES;
    atomic_store_explicit(&skip_from, from, memory_order_relaxed);
    atomic_store_explicit(&skip_to, to, memory_order_relaxed);
    skip_huge_pages(from, to);
}

static void make_plain(uint32_t huge_page)
{
    if (slice_at(huge_page)->huge_advice != HUGE_ADVISED || atomic_load_explicit(&asking, memory_order_relaxed) <= 0)
        return;
    if (atomic_load_explicit(&plain, memory_order_relaxed) < PLAIN_MOST) {
        skip_huge_pages(huge_page, huge_page + HUGE_PAGE_SLICES);
        return;
    }
    atomic_store(&asking, -1);
    vm_advise_huge(slice_address(0), (size_t)region_end() << SLICE_SHIFT, false);
}

void huge_discarding(uint32_t slice, uint32_t length)
{
    uint32_t first = slice & ~(HUGE_PAGE_SLICES - 1), last = (slice + length) & ~(HUGE_PAGE_SLICES - 1);
    if (slice != first)
        make_plain(first);
    if (slice + length != last && (last != first || slice == first))
        make_plain(last);
}

uint64_t huge_slices(void)
{
    return (uint64_t)atomic_load_explicit(&huge, memory_order_relaxed) * HUGE_PAGE_SLICES;
}
