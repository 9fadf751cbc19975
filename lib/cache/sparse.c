#include "cache/sparse.h"
#include "cache/barns.h"
#include "cache/ends.h"
#include "cache/sheaves.h"

/* Objects of a sparse cache come back so seldom that larger sheaves would only pin slabs. */
#define CAPACITY_LEAST 2

static unsigned wanted_capacity(const struct kmem_cache *cache)
{
    uint64_t wanted = slab_out(&cache->slab) / SPARSE_WAITING;
    return wanted > CAPACITY_LEAST ? (unsigned)(wanted < UINT16_MAX ? wanted : UINT16_MAX) : CAPACITY_LEAST;
}

/* Lower the capacity of the slot's next sheaves, and return the difference to its budget. */
static void shrink(const struct kmem_cache *cache, unsigned slot, unsigned capacity)
{
    _Atomic uint64_t *spare = &slot_words(slot, word_id(cache->number))->spare;
    uint64_t seen = atomic_load_explicit(spare, memory_order_relaxed);
    do {
        if (spare_capacity(seen) <= capacity)
            return;
    } while (!atomic_compare_exchange_weak(spare, &seen,
                                           spare_with_capacity(seen & ~(SPARE_SWAPS | SPARE_SETTLED), capacity)));
    atomic_fetch_sub_explicit(&slot_head(slot)->budget_used,
                              2 * (int64_t)(spare_capacity(seen) - capacity) * (int64_t)cache->slab.size,
                              memory_order_relaxed);
}

static void flush(struct kmem_cache *cache, unsigned slot, struct sheaf *sheaf, struct barn *barn)
{
    if (sheaf)
        cache_empty_sheaf(cache, slot, sheaf, barn);
}

/* Signal handlers and other threads find the slot without sheaves meanwhile, as in every slow path. */
bool sparse_free(struct kmem_cache *cache, unsigned slot, uint64_t top, void *object)
{
    unsigned capacity = wanted_capacity(cache);
    if (cache->capacity_fixed || capacity > spare_capacity(slot_words(slot, word_id(cache->number))->spare))
        return false;
    struct sheaf *sheaf = empty_sheaf_alloc(capacity);
    struct ends ends;
    if (!sheaf)
        return false;
    if (!ends_detach(cache, slot, top, &ends)) {
        empty_sheaf_free(sheaf);
        return false;
    }
    struct barn *barn = cache_barn_here(cache);
    barns_traffic(slot,
                  ((ends.pop ? ends.pop->count : 0ul) + (ends.push ? ends.push->count : 0ul)) * cache->slab.size);
    shrink(cache, slot, capacity);
    flush(cache, slot, ends.pop, barn);
    flush(cache, slot, ends.push, barn);
    flush(cache, slot, cache_take_spare(slot, word_id(cache->number)), barn);
    barn_drain_some(cache, slot, barn);
    sheaf->objects[sheaf->count++] = object;
    count(slot, cache->number, COUNT_free_slowpath, 1);
    ends_attach(cache, slot, cache->lifo ? (struct ends){.pop = sheaf} : (struct ends){.push = sheaf});
    return true;
}
