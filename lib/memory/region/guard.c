#include "memory/region/guard.h"
#include "memory/region/region.h"
#include "platform/os/numa.h"
#include "platform/os/vm.h"

bool guard_on;
static _Atomic uint32_t pieces;

bool guard_claim(void)
{
    if (likely(atomic_fetch_add(&pieces, 1) < GUARD_MOST))
        return true;
    guard_drop();
    return false;
}

void guard_drop(void)
{
    atomic_fetch_sub(&pieces, 1);
}

/* By node: the lowest guard that may not be closed yet, or a slice below it. */
static _Atomic uint32_t next_guard[NODES_MAX];

/*
 * A guard stays open if there are too many already or the system refuses to close it (which vm_failures counts).
 * Extents follow one another upwards, so guards below next_guard need no second look.
 */
void guard_close(unsigned node, uint32_t start, uint32_t frontier)
{
    uint32_t seen = atomic_load_explicit(&next_guard[node], memory_order_relaxed), slice;
    while ((slice = guard_from(seen < start ? start : seen)) < frontier) {
        if (!atomic_compare_exchange_weak(&next_guard[node], &seen, slice + 1))
            continue;
        if (guard_claim())
            vm_close(slice_address(slice), SLICE_SIZE);
        seen = slice + 1;
    }
}
