#include "cache/slot/barn.h"

#define ONE_SHEAF (1ull << BARN_SHEAF_SHIFT)
#define OBJECTS   (ONE_SHEAF - 1)

bool barn_count_in(struct barn *barn, uint64_t objects, uint64_t limit)
{
    uint64_t add = ONE_SHEAF + objects;
    if ((atomic_fetch_add_explicit(&barn->held, add, memory_order_relaxed) & OBJECTS) + objects <= limit)
        return true;
    atomic_fetch_sub_explicit(&barn->held, add, memory_order_relaxed);
    return false;
}

/* The first comparison saves the two additions in a full barn; the second decides. */
bool barn_put(struct barn *barn, struct sheaf *sheaf, uint64_t limit)
{
    uint64_t n = sheaf->count;
    if (barn_objects(barn) + n <= limit && barn_count_in(barn, n, limit)) {
        sheaf_stack_push(&barn->full, sheaf);
        return true;
    }
    if (!atomic_load_explicit(&barn->refused, memory_order_relaxed))
        atomic_store_explicit(&barn->refused, true, memory_order_relaxed);
    return false;
}

struct sheaf *barn_get(struct barn *barn)
{
    /* read first, so that an empty barn does not need its cache line exclusively */
    if (!sheaf_stack_holds(&barn->full))
        return NULL;
    struct sheaf *sheaf = sheaf_stack_pop(&barn->full);
    if (!sheaf)
        return NULL;
    uint64_t take = ONE_SHEAF + sheaf->count;
    uint64_t left = (atomic_fetch_sub_explicit(&barn->held, take, memory_order_relaxed) - take) & OBJECTS;
    if (left < atomic_load_explicit(&barn->low, memory_order_relaxed))
        atomic_store_explicit(&barn->low, left, memory_order_relaxed);
    return sheaf;
}

void barn_missed(struct barn *barn, uint32_t least, uint32_t most)
{
    if (!atomic_load_explicit(&barn->refused, memory_order_relaxed))
        return;
    atomic_store_explicit(&barn->refused, false, memory_order_relaxed);
    uint64_t limit = barn_limit(barn, least);
    uint64_t larger = limit + limit / 2 < most ? limit + limit / 2 : most;
    atomic_store_explicit(&barn->grown, (uint32_t)(larger - least), memory_order_relaxed);
}

uint64_t barn_decay(struct barn *barn, bool shrink)
{
    uint32_t grown = atomic_load_explicit(&barn->grown, memory_order_relaxed);
    uint64_t now = barn_objects(barn);
    uint64_t low = atomic_exchange_explicit(&barn->low, now, memory_order_relaxed);
    if (shrink && grown)
        atomic_store_explicit(&barn->grown, grown - grown / 4, memory_order_relaxed);
    return low < now ? low : now;
}
