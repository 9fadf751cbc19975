#include "process/locked.h"
#include "cache/kmem_cache.h"
#include "process/helper.h"
#include "process/start.h"
#include "memory/region/region.h"
#include "memory/slab/descriptor.h"
#include "cache/slot/sheaf.h"
#include "cache/slot/slot.h"

/*
 * Other threads may be about to use what is unmapped, and there is no way to wait for them. With several threads
 * their stacks alone are more than a small limit allows.
 */
void locked_prepare(void)
{
    bool alone = &__libc_single_threaded && __libc_single_threaded;
    if (!alone || !__atomic_load_n(&cache_layer_ready, __ATOMIC_ACQUIRE))
        return;
    unsigned slots = slot_mode == SHEAF_MODE_LOCK ? space.slots_open : slot_top + !slot_top;
    if (!region_slim(slots))
        return;
    descriptor_slim();
    sheaf_slim();
}

bool locked_set(bool locked)
{
    return atomic_exchange(&space.locked, locked);
}
