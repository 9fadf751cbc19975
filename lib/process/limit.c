#include "process/limit.h"
#include "platform/config/config.h"
#include "platform/os/cgroup.h"
#include "platform/os/cpu.h"
#include "platform/os/vm.h"
#include "memory/region/region.h"

/* Shares of the process's memory limit: */
#define SHARE_OF_SLOTS 64 /* for objects in the sheaves of all slots */
#define SHARE_OF_KEEP  16 /* for free memory that the region may learn to keep */
#define SHARE_OF_RCU   16 /* for deferred frees */

static size_t at_most(size_t now, size_t most)
{
    return now < most ? now : most;
}

void limit_apply(size_t bytes)
{
    size_t share = bytes / SHARE_OF_SLOTS / cpu_allowed_count, least = 64ul << 10;
    share = share < least ? least : share;
    if (sheaf_config.slot_budget_by_memory)
        write_once(sheaf_config.slot_budget, at_most(sheaf_config.slot_budget, share));
    if (!sheaf_config.chosen.keep && bytes / SHARE_OF_KEEP < sheaf_config.keep)
        region_retain(bytes / SHARE_OF_KEEP, false);
    if (!sheaf_config.chosen.rcu_limit)
        write_once(sheaf_config.rcu_limit, at_most(sheaf_config.rcu_limit, bytes / SHARE_OF_RCU));
}

bool limit_allowed;

void limit_poll(void)
{
    static _Atomic bool looked;
    if (!limit_allowed || atomic_load_explicit(&looked, memory_order_relaxed) || atomic_exchange(&looked, true))
        return;
    size_t limit = at_most(cgroup_limit(), space.limit);
    if (limit < vm_machine_memory())
        limit_apply(limit);
}
