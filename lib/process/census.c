#include "process/census.h"
#include "cache/ends.h"
#include "deferred/rcu.h"

void cache_census(const struct kmem_cache *cache, struct cache_census *census)
{
    unsigned number = cache->number;
    uint64_t allocs = 0, frees = 0;
    *census = (struct cache_census){.out = slab_out(&cache->slab)};
    for (unsigned slot = 0; slot < read_once(slot_top); slot++) {
        const struct slot_words *words = slot_words(slot, SLOT_ID(number));
        uint32_t spare = (uint32_t)atomic_load_explicit(&words->spare, memory_order_relaxed);
        struct ends_account ends = ends_account(cache, read_once(words->top));
        /* a fold meanwhile may make them negative for a moment */
        allocs += (uint64_t)(int32_t)ends.pops;
        frees += (uint64_t)(int32_t)ends.pushes;
        census->in_sheaves += ends.pop_depth + ends.push_depth;
        if (spare)
            census->in_sheaves += sheaf_at(spare)->count;
    }
    allocs += counter_sum(number, COUNT_alloc_fastpath) + counter_sum(number, COUNT_alloc_slowpath);
    uint64_t from_prefilled = counter_sum(number, COUNT_alloc_prefilled);
    allocs += from_prefilled;
    census->in_prefilled = cache->inherited_prefilled + counter_sum(number, COUNT_prefill_objects) -
                           counter_sum(number, COUNT_prefill_returned) - from_prefilled;
    census->waiting = read_once(cache->waiting);
    census->in_reserve = atomic_load_explicit(&cache->reserved, memory_order_relaxed);
    frees += counter_sum(number, COUNT_free_fastpath) + counter_sum(number, COUNT_free_slowpath) +
             counter_sum(number, COUNT_free_rcu_done);
    census->in_rcu = rcu_objects(cache);
    for (int i = 0; i < DOMAINS; i++) {
        census->in_barns += barn_objects(cache_barn(cache, i));
        census->barn_sheaves += barn_sheaves(cache_barn(cache, i));
        census->barn_limit += barn_limit(cache_barn(cache, i), cache->barn_least);
    }
    uint64_t in = cache->inherited + allocs;
    census->in_use = in > frees ? in - frees : 0;
}

/* A cache with a detour may keep back what its users freed. */
static bool rcu_agrees(const struct kmem_cache *cache, const struct cache_census *census)
{
    uint64_t given = cache->inherited_rcu + counter_sum(cache->number, COUNT_free_rcu);
    return cache->detour || given - counter_sum(cache->number, COUNT_free_rcu_done) == census->in_rcu;
}

void cache_check(struct kmem_cache *cache)
{
    struct cache_census census;
    slab_check(&cache->slab);
    cache_census(cache, &census);
    if (census.out != census.in_use + census.in_sheaves + census.in_barns + census.in_prefilled + census.in_reserve +
                          census.waiting)
        sheaf_assert_failed("objects out = in use + in sheaves, barns, prefilled sheaves, reserve, quarantine",
                            __FILE__, __LINE__);
    if (!rcu_agrees(cache, &census) || census.in_rcu > census.in_use)
        sheaf_assert_failed("deferred frees = those back + those that wait, in use", __FILE__, __LINE__);
}
