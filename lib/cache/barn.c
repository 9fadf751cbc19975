#include "cache/barn.h"

bool barn_put(struct barn *barn, struct sheaf *sheaf, bool force)
{
    int64_t n = sheaf->count;
    int64_t limit = atomic_load_explicit(&barn->limit, memory_order_relaxed);
    if (!force && atomic_load_explicit(&barn->objects, memory_order_relaxed) + n > limit)
        goto refused;
    if (atomic_fetch_add_explicit(&barn->objects, n, memory_order_relaxed) + n > limit && !force) {
        atomic_fetch_sub_explicit(&barn->objects, n, memory_order_relaxed);
        goto refused;
    }
    atomic_fetch_add_explicit(&barn->sheaves, 1, memory_order_relaxed);
    sheaf_stack_push(&barn->full, sheaf);
    return true;
refused:
    atomic_fetch_add_explicit(&barn->refused, 1, memory_order_relaxed);
    return false;
}

struct sheaf *barn_get(struct barn *barn)
{
    /* read first: an empty barn must not cost its line an exclusive access */
    if (!(uint32_t)atomic_load_explicit(&barn->full, memory_order_relaxed))
        return NULL;
    struct sheaf *sheaf = sheaf_stack_pop(&barn->full);
    if (!sheaf)
        return NULL;
    int64_t left = atomic_fetch_sub_explicit(&barn->objects, sheaf->count, memory_order_relaxed) - sheaf->count;
    atomic_fetch_sub_explicit(&barn->sheaves, 1, memory_order_relaxed);
    if (left < atomic_load_explicit(&barn->low, memory_order_relaxed))
        atomic_store_explicit(&barn->low, left, memory_order_relaxed);
    return sheaf;
}

void barn_missed(struct barn *barn, uint32_t most)
{
    if (!atomic_load_explicit(&barn->refused, memory_order_relaxed))
        return;
    atomic_store_explicit(&barn->refused, 0, memory_order_relaxed);
    uint32_t limit = atomic_load_explicit(&barn->limit, memory_order_relaxed);
    uint32_t larger = limit + limit / 2;
    atomic_store_explicit(&barn->limit, larger < most ? larger : most, memory_order_relaxed);
}

int64_t barn_decay(struct barn *barn, uint32_t least)
{
    uint32_t limit = atomic_load_explicit(&barn->limit, memory_order_relaxed);
    int64_t now = atomic_load_explicit(&barn->objects, memory_order_relaxed);
    int64_t low = atomic_exchange_explicit(&barn->low, now, memory_order_relaxed);
    if (limit > least)
        atomic_store_explicit(&barn->limit, limit - (limit - least) / 4, memory_order_relaxed);
    return low < now ? low : now;
}
