#include "region/huge.h"
#include "region/region.h"
#include "os/clock.h"
#include "os/numa.h"
#include "os/vm.h"

#define WINDOW      32u   /* units: 2 MiB */
#define HUGE_AFTER  256   /* units: 16 MiB */
#define PLAIN_MOST  1024u /* windows advised against one by one: each may split a mapping; there may be 65530 */
#define NOT_STARTED UNIT_NONE
#define SMALL_PAGES 768u  /* dear: more than so many faults of small pages; half as many again as a window has */
#define SMALL_NS    1000u /* what a fault of a small page costs at least: 1000 to 1600 here */
#define SKIP_MOST   64u   /* windows */

/* For each memory node's part of the slabs. */
static struct range {
    _Atomic uint32_t start; /* one more than the first unit that may be huge; 0: not yet, NOT_STARTED: never */
    uint32_t limit;
} ranges[NODES_MAX];
static _Atomic uint32_t plain; /* windows advised against */

static struct range *range_of(uint32_t unit)
{
    return &ranges[region_node(unit)];
}

void huge_init(bool wanted)
{
    for (unsigned i = 0; i < numa.count; i++)
        atomic_store(&ranges[i].start, wanted && !vm_staged ? 0 : NOT_STARTED);
}

/* Who changes `start` from 0 does it. Another thread that touches the memory meanwhile gets small pages. */
void huge_grown(uint64_t in_use, unsigned node, uint32_t frontier, uint32_t end)
{
    struct range *range = &ranges[node];
    uint32_t none = 0, first = (uint32_t)round_up(frontier, WINDOW);
    if (likely(in_use < HUGE_AFTER || atomic_load_explicit(&range->start, memory_order_relaxed)) || first >= end)
        return;
    if (!atomic_compare_exchange_strong(&range->start, &none, first + 1))
        return;
    range->limit = end;
    vm_advise_huge(unit_address(first), (size_t)(end - first) << UNIT_SHIFT, true);
}

static uint64_t touch_ns(uint32_t unit)
{
    uint64_t begin = clock_thread_ns();
    *(volatile char *)unit_address(unit) = 0;
    return clock_thread_ns() - begin;
}

/* The windows [first, first + n) are to get small pages. */
static void skip_windows(uint32_t first, uint32_t n)
{
    uint32_t limit = range_of(first)->limit;
    uint32_t end = limit - first < n * WINDOW ? limit : first + n * WINDOW;
    for (uint32_t window = first; window < end; window += WINDOW)
        if (!space.units[window].plain) {
            space.units[window].plain = 1;
            atomic_fetch_add(&plain, 1);
        }
    vm_advise_huge(unit_address(first), (size_t)(end - first) << UNIT_SHIFT, false);
}

/* Racy: two threads that enter windows at once may both skip, or take each other's cost for the usual one. */
void huge_touch(uint32_t unit, uint32_t units)
{
    static _Atomic uint32_t small_ns = SMALL_NS, skip = 1;
    const struct range *range = range_of(unit);
    uint32_t first = atomic_load_explicit(&range->start, memory_order_relaxed), limit = range->limit;
    uint32_t window = (uint32_t)round_up(unit, WINDOW);
    if (likely(window >= unit + units) || first - 1 >= NOT_STARTED - 1 || window < first - 1 || window >= limit)
        return;
    uint64_t ns = touch_ns(window);
    if (space.units[window].plain) {
        uint32_t usual = atomic_load_explicit(&small_ns, memory_order_relaxed);
        uint32_t now = ns < 4ull * usual ? (uint32_t)ns : 4 * usual; /* not where it was preempted */
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
    if (limit - window > WINDOW && atomic_load_explicit(&plain, memory_order_relaxed) + n <= PLAIN_MOST)
        skip_windows(window + WINDOW, n);
}

static void make_plain(uint32_t window)
{
    struct range *range = range_of(window);
    uint32_t first = atomic_load_explicit(&range->start, memory_order_relaxed), limit = range->limit;
    if (first - 1 >= NOT_STARTED - 1 || window < first - 1 || window >= limit || space.units[window].plain)
        return;
    space.units[window].plain = 1;
    if (atomic_fetch_add(&plain, 1) == PLAIN_MOST) {
        atomic_store(&range->start, NOT_STARTED);
        vm_advise_huge(unit_address(first - 1), (size_t)(limit - first + 1) << UNIT_SHIFT, false);
    } else {
        vm_advise_huge(unit_address(window), (size_t)WINDOW << UNIT_SHIFT, false);
    }
}

void huge_discarding(uint32_t unit, uint32_t length)
{
    uint32_t first = unit & ~(WINDOW - 1), last = (unit + length) & ~(WINDOW - 1);
    if (unit != first)
        make_plain(first);
    if (unit + length != last && (last != first || unit == first))
        make_plain(last);
}

uint64_t huge_units(void)
{
    uint64_t all = 0, not = (uint64_t)atomic_load_explicit(&plain, memory_order_relaxed) * WINDOW;
    for (unsigned i = 0; i < numa.count; i++) {
        uint32_t first = atomic_load_explicit(&ranges[i].start, memory_order_relaxed), frontier = region_frontier(i);
        if (first - 1 < NOT_STARTED - 1 && frontier >= first)
            all += frontier - first + 1;
    }
    return all > not ? all - not : 0;
}
