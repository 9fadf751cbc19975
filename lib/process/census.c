#include "process/census.h"
#include "cache/ends.h"
#include "cache/deferred/rcu.h"

/* The sums of counters.def, by the expressions given there. */
struct counted {
#define SHEAF_COUNTER_SUMS(name, sum, help) uint64_t name;
#include "cache/slot/counters.def"
#undef SHEAF_COUNTER_SUMS
};

static struct counted counted(const struct kmem_cache *cache)
{
    uint64_t sums[SLOT_COUNTERS] = {0};
    for (unsigned slot = 0; slot < read_once(slot_top); slot++) {
        const uint64_t *counters = counter_at(slot, cache->number, 0);
        for (unsigned i = 0; i < SLOT_COUNTERS; i++)
            sums[i] += read_once(counters[i]);
    }
#define SHEAF_SLOT_COUNTERS(name, help) const uint64_t name __attribute__((unused)) = sums[COUNT_##name];
#include "cache/slot/counters.def"
#undef SHEAF_SLOT_COUNTERS
    const uint64_t inherited = cache->inherited;
    return (struct counted){
#define SHEAF_COUNTER_SUMS(name, sum, help) .name = sum,
#include "cache/slot/counters.def"
#undef SHEAF_COUNTER_SUMS
    };
}

void cache_census_barns(const struct kmem_cache *cache, struct cache_census *census)
{
    unsigned n = slot_domains();
    census->in_barns = census->barn_sheaves = 0;
    census->barn_limit = (uint64_t)(DOMAINS - n) * cache->barn_least;
    for (unsigned i = 0; i < n; i++) {
        census->in_barns += barn_objects(cache_barn(cache, i));
        census->barn_sheaves += barn_sheaves(cache_barn(cache, i));
        census->barn_limit += barn_limit(cache_barn(cache, i), cache->barn_least);
    }
}

void cache_census(const struct kmem_cache *cache, struct cache_census *census)
{
    *census = (struct cache_census){.out = slab_out(&cache->slab)};
    int64_t uncounted = 0; /* fast allocations less frees that the words still count */
    for (unsigned slot = 0; slot < read_once(slot_top); slot++) {
        const struct slot_words *words = slot_words(slot, word_id(cache->number));
        const struct sheaf *spare = spare_sheaf(atomic_load_explicit(&words->spare, memory_order_relaxed));
        struct ends_account ends = ends_account(cache, read_once(words->top));
        /* a concurrent fold may make either negative */
        uncounted += (int32_t)ends.pops - (int64_t)(int32_t)ends.pushes;
        census->in_sheaves += ends.pop_depth + ends.push_depth;
        if (spare)
            census->in_sheaves += spare->count;
    }
    struct counted sums = counted(cache);
    int64_t in_use = (int64_t)sums.in_use + uncounted;
    census->in_use = in_use > 0 ? (uint64_t)in_use : 0;
    census->in_prefilled = cache->inherited_prefilled + sums.in_prefilled;
    census->in_rcu = rcu_objects(cache);
    census->in_reserve = atomic_load_explicit(&cache->reserved, memory_order_relaxed);
    census->waiting = read_once(cache->waiting);
    cache_census_barns(cache, census);
}

uint64_t census_kept(const struct cache_census *census)
{
    return census->in_sheaves + census->in_barns + census->in_prefilled + census->in_reserve + census->waiting;
}

void census_add(struct cache_census *sum, const struct cache_census *one)
{
    sum->out += one->out;
    sum->in_use += one->in_use;
    sum->in_sheaves += one->in_sheaves;
    sum->in_barns += one->in_barns;
    sum->in_prefilled += one->in_prefilled;
    sum->in_reserve += one->in_reserve;
    sum->waiting += one->waiting;
    sum->barn_sheaves += one->barn_sheaves;
    sum->barn_limit += one->barn_limit;
    sum->in_rcu += one->in_rcu;
}

/* In an instrumented cache the counts may differ, because it may keep objects back after their grace period. */
static bool rcu_agrees(const struct kmem_cache *cache, const struct cache_census *census)
{
    return cache->instruments || cache->inherited_rcu + counted(cache).in_rcu == census->in_rcu;
}

void cache_check(struct kmem_cache *cache)
{
    struct cache_census census;
    slab_check(&cache->slab);
    cache_census(cache, &census);
    if (census.out != census.in_use + census_kept(&census))
        sheaf_assert_failed("objects out = in use + in sheaves, barns, prefilled sheaves, reserve, quarantine",
                            __FILE__, __LINE__);
    if (!rcu_agrees(cache, &census) || census.in_rcu > census.in_use)
        sheaf_assert_failed("deferred frees = those back + those that wait, in use", __FILE__, __LINE__);
}
