#include "region/guard.h"
#include "region/region.h"
#include "os/numa.h"
#include "os/vm.h"

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

static _Atomic uint32_t closed[NODES_MAX]; /* how many, in each node's part */

/* One that is refused (too many pieces, or mappings) stays open; what the system refuses is counted with what failed.
 */
void guard_close(unsigned node, uint32_t start, uint32_t frontier)
{
    uint32_t n = atomic_load_explicit(&closed[node], memory_order_relaxed), unit;
    while ((unit = start + (n + 1) * GUARD_GROUP - 1) < frontier) {
        if (!atomic_compare_exchange_weak(&closed[node], &n, n + 1))
            continue;
        if (guard_claim())
            vm_close(unit_address(unit), UNIT_SIZE);
        n++;
    }
}
