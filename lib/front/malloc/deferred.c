/* Deferred frees of memory from malloc and the caches: the table that libsheaf-rcu looks up. */
#include "front/malloc/deferred.h"
#include "cache/deferred/rcu.h"
#include "cache/misuse.h"
#include "diagnostics/feature/guarded_pool.h"
#include "front/malloc/fast.h"
#include "front/malloc/large.h"
#include "memory/space/mapped.h"
#include "memory/slab/retire.h"
#include "platform/os/hooks.h"
#include "process/start.h"

static size_t size_large(void *p)
{
    if (unlikely(pool_has(p)))
        return pool_size(p);
    return in_region(p) ? large_size(p) : mapped_size(p);
}

static void free_any(void *p)
{
    free_fast(p);
}

static void attach(void (*kick)(void), void (*barrier_on)(struct kmem_cache *cache), void (*start)(void))
{
    hooks.rcu_free_large = free_any;
    hooks.rcu_large_size = size_large;
    hooks.rcu_barrier_on = barrier_on;
    hooks.rcu_start = start;
    hooks.slab_retired = kick;
    __atomic_store_n(&hooks.rcu_kick, kick, __ATOMIC_RELEASE);
}

static bool owns(const void *p)
{
    if (!__atomic_load_n(&cache_layer_ready, __ATOMIC_ACQUIRE))
        return false;
    return slice_of(p) < space.slice_count || pool_has(p) || mapped_size(p);
}

static bool owns_cache(const struct kmem_cache *cache)
{
    const struct kmem_cache *rows = cache_at(COUNTER_GROUP), *rows_end = (const void *)cache_tables_of(CACHE_MAX);
    return (cache >= caches_first && cache < caches_first + COUNTER_GROUP) || (cache >= rows && cache < rows_end);
}

static enum sheaf_rcu_put put(void *p)
{
    uintptr_t slice = slice_of(p);
    struct push_id id = {slice < space.slice_count ? read_once(*slice_id(slice)) : 0};
    if (likely(id.at))
        return rcu_put(cache_at(push_id_number(id)), p);
    size_t size = size_large(p);
    if (unlikely(!size))
        large_report("kfree_rcu of", p);
    return rcu_put_large(p, size);
}

static enum sheaf_rcu_put put_object(struct kmem_cache *cache, void *object)
{
    uintptr_t slice = slice_of(object);
    struct push_id id = {slice < space.slice_count ? read_once(*slice_id(slice)) : 0};
    if (unlikely(!id.at))
        misuse_report("free of foreign pointer", object, cache->name);
    if (unlikely(cache_at(push_id_number(id))->home != cache->home))
        misuse_report("free to the wrong cache of", object, cache_at(push_id_number(id))->name);
    return rcu_put(cache_at(push_id_number(id)), object);
}

static bool over_limit(void)
{
    struct sheaf_rcu_stats stats = {0};
    rcu_stats(&stats);
    return stats.bytes > sheaf_config.rcu_limit;
}

static void tune(size_t limit, uint32_t age_ms)
{
    cache_layer_init(); /* reads the options, which must not overwrite these values */
    if (limit) {
        sheaf_config.rcu_limit = limit;
        sheaf_config.chosen.rcu_limit = true;
    }
    if (age_ms)
        sheaf_config.rcu_age_ms = age_ms;
}

static uint32_t age(void)
{
    return sheaf_config.rcu_age_ms;
}

const struct sheaf_rcu_allocator sheaf_rcu_allocator_1 = {
    .size = sizeof(struct sheaf_rcu_allocator),
    .attach = attach,
    .owns = owns,
    .owns_cache = owns_cache,
    .put = put,
    .put_object = put_object,
    .free = free_any,
    .seal = rcu_seal,
    .collect = rcu_collect,
    .finish = rcu_finish,
    .waits = rcu_waits,
    .over_limit = over_limit,
    .tune = tune,
    .age = age,
    .note = rcu_note,
    .stats = rcu_stats,
};
