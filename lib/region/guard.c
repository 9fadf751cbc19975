#include "region/guard.h"
#include "region/region.h"
#include "os/numa.h"
#include "os/vm.h"

bool guard_on;

static _Atomic uint32_t closed[NODES_MAX]; /* how many, in each node's part */

/* One that the system refuses to close (too many mappings) stays open, and is counted with what failed. */
void guard_close(unsigned node, uint32_t start, uint32_t frontier)
{
    uint32_t n = atomic_load_explicit(&closed[node], memory_order_relaxed), unit;
    while ((unit = start + (n + 1) * GUARD_GROUP - 1) < frontier) {
        if (!atomic_compare_exchange_weak(&closed[node], &n, n + 1))
            continue;
        vm_close(unit_address(unit), UNIT_SIZE);
        n++;
    }
}
