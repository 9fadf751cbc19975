#include "cache/sheaves.h"
#include "cache/barns.h"
#include "cache/ends.h"
#include "cache/misuse.h"

#include <string.h>

/* ---- the spare ---- */

struct sheaf *cache_take_spare(unsigned slot, struct word_id id)
{
    _Atomic uint64_t *spare = &slot_words(slot, id)->spare;
    if (!(uint32_t)atomic_load_explicit(spare, memory_order_relaxed))
        return NULL;
    return spare_sheaf(atomic_fetch_and(spare, ~0ull << 32)); /* the capacity stays */
}

int cache_spare_holds(unsigned slot, struct word_id id)
{
    const struct sheaf *spare = spare_sheaf(atomic_load_explicit(&slot_words(slot, id)->spare, memory_order_relaxed));
    return spare ? read_once(spare->count) : -1;
}

bool cache_put_spare(unsigned slot, struct word_id id, struct sheaf *sheaf)
{
    _Atomic uint64_t *spare = &slot_words(slot, id)->spare;
    uint64_t seen = atomic_load_explicit(spare, memory_order_relaxed);
    while (!(uint32_t)seen)
        if (atomic_compare_exchange_weak(spare, &seen, seen | sheaf_offset(sheaf)))
            return true;
    return false;
}

/* ---- capacity ---- */

static unsigned step_up(const struct kmem_cache *cache, unsigned capacity)
{
    if (cache->capacity_fixed)
        return cache->capacity;
    unsigned larger = capacity ? sheaf_capacity_of(sheaf_order_for(capacity) + 1) : CAPACITY_START;
    return larger < cache->capacity ? larger : cache->capacity;
}

bool cache_grow_sheaves(const struct kmem_cache *cache, unsigned slot, unsigned capacity, bool force)
{
    _Atomic uint64_t *spare = &slot_words(slot, word_id(cache->number))->spare;
    _Atomic int64_t *used = &slot_head(slot)->budget_used;
    uint64_t seen = atomic_load_explicit(spare, memory_order_relaxed);
    while (spare_capacity(seen) < capacity) {
        int64_t bytes = 2 * (int64_t)(capacity - spare_capacity(seen)) * cache->slab.size;
        int64_t most = (int64_t)sheaf_config.slot_budget;
        if (!force && atomic_load_explicit(used, memory_order_relaxed) + bytes > most)
            return false;
        if (atomic_compare_exchange_weak(spare, &seen, spare_with_capacity(seen, capacity)))
            atomic_fetch_add_explicit(used, bytes, memory_order_relaxed);
    }
    return true;
}

unsigned cache_next_capacity(const struct kmem_cache *cache, unsigned slot)
{
    unsigned capacity = spare_capacity(slot_words(slot, word_id(cache->number))->spare);
    unsigned larger = step_up(cache, capacity);
    return likely(larger == capacity) || !cache_grow_sheaves(cache, slot, larger, !capacity) ? capacity : larger;
}

/*
 * A LIFO load that swings by more than one sheaf holds and less than two never asks for a new sheaf, but swaps main
 * and spare often. If swaps are frequent relative to the objects that each main sheaf served, sheaves grow by a step
 * at every SWAPS_TO_GROW-th swap.
 */
#define SWAPS_TO_GROW 16
struct sheaf *cache_swap_spare(struct kmem_cache *cache, unsigned slot, uint64_t top, struct sheaf *spare)
{
    count(slot, cache->number, COUNT_spare_swap, 1);
    if (!cache->lifo || (top_pop_end(top).at && ends_account(cache, top).pops > 4ul * spare->capacity))
        return spare;
    uint64_t seen = atomic_fetch_add(&slot_words(slot, word_id(cache->number))->spare, SPARE_SWAP);
    bool grow = spare_swaps(seen) % SWAPS_TO_GROW == SWAPS_TO_GROW - 1;
    unsigned capacity = grow ? cache_next_capacity(cache, slot) : spare_capacity(seen);
    struct sheaf *larger = spare->capacity < capacity ? empty_sheaf_alloc(capacity) : NULL;
    if (!larger)
        return spare;
    memcpy(larger->objects, spare->objects, spare->count * sizeof(void *));
    larger->count = spare->count;
    spare->count = 0;
    empty_sheaf_free(spare);
    return larger;
}

/* ---- sheaves in no slot ---- */

bool cache_flush_sheaf(struct kmem_cache *cache, unsigned slot, struct sheaf *sheaf)
{
    struct slab_report report;
    if (!slab_put(&cache->slab, sheaf->objects, sheaf->count, &report))
        return false;
    if (unlikely(report.fault))
        misuse_slab(cache, &report);
    count(slot, cache->number, COUNT_sheaf_flush, sheaf->count);
    sheaf->count = 0;
    burst_poll();
    return true;
}

bool cache_empty_sheaf(struct kmem_cache *cache, unsigned slot, struct sheaf *sheaf, struct barn *barn)
{
    if (sheaf->count && !cache_flush_sheaf(cache, slot, sheaf)) {
        barn_put(barn, sheaf, BARN_FORCE);
        return false;
    }
    empty_sheaf_free(sheaf);
    return true;
}

void cache_discard_sheaf(struct kmem_cache *cache, unsigned slot, struct sheaf *sheaf)
{
    while (sheaf->count && cache_absorb(cache, sheaf->objects[sheaf->count - 1]))
        sheaf->count--;
    cache_empty_sheaf(cache, slot, sheaf, cache_barn_here(cache));
}

bool cache_barn_put(struct kmem_cache *cache, unsigned slot, struct sheaf *sheaf, bool force)
{
    struct barn *barn = cache_barn_here(cache);
    bool sparse = !force && cache_is_sparse(cache);
    if (unlikely(sparse))
        barn_drain_some(cache, slot, barn);
    bool done = !sparse && barn_put(barn, sheaf, force ? BARN_FORCE : barn_limit(barn, cache->barn_least));
    count(slot, cache->number, done ? COUNT_barn_put : COUNT_barn_put_fail, 1);
    barns_traffic(slot, (uint64_t)sheaf->count * cache->slab.size);
    return done;
}

void cache_put_sheaf(struct kmem_cache *cache, unsigned slot, struct sheaf *sheaf)
{
    /* both sheaves of a two-ended word may be full, and a full spare would be a third */
    if ((cache->lifo || !sheaf->count) && cache_put_spare(slot, word_id(cache->number), sheaf))
        return;
    if (sheaf->count) {
        if (cache_barn_put(cache, slot, sheaf, false))
            return;
        if (!cache_flush_sheaf(cache, slot, sheaf)) {
            cache_barn_put(cache, slot, sheaf, true);
            return;
        }
    }
    empty_sheaf_free(sheaf);
}
