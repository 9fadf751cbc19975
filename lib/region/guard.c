#include "region/guard.h"
#include "region/region.h"
#include "os/vm.h"

bool guard_on;

static _Atomic uint32_t next = GUARD_GROUP - 1; /* the first that is not closed */

/* One that the system refuses to close (too many mappings) stays open, and is counted with what failed. */
void guard_close(uint32_t frontier)
{
    uint32_t unit = atomic_load_explicit(&next, memory_order_relaxed);
    while (unit < frontier) {
        if (!atomic_compare_exchange_weak(&next, &unit, unit + GUARD_GROUP))
            continue;
        vm_close(unit_address(unit), UNIT_SIZE);
        unit += GUARD_GROUP;
    }
}
