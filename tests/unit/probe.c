#define _GNU_SOURCE
#include "probe.h"
#include "process/helper.h"
#include "cache/kmem_cache.h"
#include "process/limit.h"
#include "cache/node/node.h"
#include "cache/remote.h"
#include "memory/slab/holes.h"
#include "front/malloc/classes.h"
#include "front/malloc/large.h"
#include "front/malloc/malloc.h"
#include "platform/os/cgroup.h"
#include "preload/options.h"
#include "memory/region/state.h"
#include "platform/os/hooks.h"
#include "process/start.h"
#include "process/census.h"
#include "process/decay.h"
#include "diagnostics/profile/profile.h"

#include <link.h>
#include <stdlib.h>
#include <unistd.h>

void probe_take_census(const struct kmem_cache *cache, struct probe_census *into)
{
    struct cache_census c;
    cache_fold_all();
    cache_census(cache, &c);
    unsigned n = cache->number;
    *into = (struct probe_census){
        .out = c.out,
        .in_use = c.in_use,
        .in_sheaves = c.in_sheaves,
        .in_barns = c.in_barns,
        .allocs = counter_sum(n, COUNT_alloc_fastpath) + counter_sum(n, COUNT_alloc_slowpath) +
                  counter_sum(n, COUNT_alloc_prefilled),
        .frees = counter_sum(n, COUNT_free_fastpath) + counter_sum(n, COUNT_free_slowpath),
        .refilled = counter_sum(n, COUNT_sheaf_refill),
        .flushed = counter_sum(n, COUNT_sheaf_flush),
        .in_prefilled = c.in_prefilled,
        .in_reserve = c.in_reserve,
        .allocs_fast = counter_sum(n, COUNT_alloc_fastpath),
        .prefill_fast = counter_sum(n, COUNT_sheaf_prefill_fast),
        .prefill_slow = counter_sum(n, COUNT_sheaf_prefill_slow),
        .prefill_oversize = counter_sum(n, COUNT_sheaf_prefill_oversize),
        .return_fast = counter_sum(n, COUNT_sheaf_return_fast),
        .return_slow = counter_sum(n, COUNT_sheaf_return_slow),
        .reserve_taken = counter_sum(n, COUNT_reserve_take),
    };
}

void probe_check(struct kmem_cache *cache)
{
    cache_check(cache);
}

void probe_check_all(void)
{
    for (unsigned i = CACHE_FIRST; i < cache_top; i++)
        if (cache_in_use(cache_at(i)))
            cache_check(cache_at(i));
}

size_t probe_cgroup_limit(void)
{
    return cgroup_limit();
}

void probe_cgroup_root(const char *root)
{
    cgroup_root = root;
}

struct probe_budgets probe_limit(size_t bytes, int chosen)
{
    cache_layer_init();
    struct sheaf_config before = sheaf_config;
    sheaf_config.keep = 64 << 20; /* in each mode */
    region_retain(sheaf_config.keep, chosen);
    sheaf_config.slot_budget_by_memory = !chosen;
    sheaf_config.chosen.keep = sheaf_config.chosen.rcu_limit = chosen;
    limit_apply(bytes);
    struct probe_budgets now = {sheaf_config.slot_budget, sheaf_config.rcu_limit,
                                (size_t)region.retain[ARENA_SLAB].most << SLICE_SHIFT};
    sheaf_config = before;
    region_retain(sheaf_config.keep, sheaf_config.chosen.keep);
    return now;
}

void probe_hold_remote_drains(void)
{
    lock_acquire(lock_of(LOCK_DRAIN));
}

void probe_allow_remote_drains(void)
{
    lock_release(lock_of(LOCK_DRAIN));
}

void probe_remote_drain(struct kmem_cache *cache)
{
    lock_acquire(lock_of(LOCK_DRAIN));
    remote_drain(cache, 0, slot_top, REMOTE_EMPTY);
    lock_release(lock_of(LOCK_DRAIN));
}

uint32_t probe_class_size(size_t n)
{
    malloc_init();
    return class_size(class_number(n));
}

uint32_t probe_sampled_size(size_t n)
{
    malloc_init();
    return sampled_size(class_number(n));
}

size_t probe_classes(const uint16_t **sizes)
{
    *sizes = class_sizes;
    return CACHE_CLASSES;
}

static uint64_t barn_bytes(void)
{
    uint64_t bytes = 0;
    for (unsigned i = CACHE_FIRST; i < cache_top; i++)
        for (unsigned d = 0; d < slot_domains(); d++)
            bytes += barn_objects(cache_barn(cache_at(i), d)) * cache_at(i)->slab.size;
    return bytes;
}

static int64_t budget_used(void)
{
    int64_t sum = 0;
    for (unsigned slot = 0; slot < slot_top; slot++)
        sum += slot_head(slot)->budget_used;
    return sum;
}

struct probe_figures probe(void)
{
    return (struct probe_figures){
        .large_slices = large_totals().bytes >> SLICE_SHIFT,
        .large_allocs = large_totals().allocs,
        .large_frees = large_totals().frees,
        .warm_bytes = large_totals().warm_bytes,
        .warm_slab_bytes = (uint64_t)warm_of(ARENA_SLAB) << SLICE_SHIFT,
        .purged_bytes = region_stats.purged_slices << SLICE_SHIFT,
        .region_slices = space.slice_count,
        .slab_bytes = region_stats.slab_slices << SLICE_SHIFT,
        .hole_bytes = slab_hole_bytes(),
        .sheaf_bytes = sheaf_pool_bytes(),
        .barn_bytes = barn_bytes(),
        .budget_used = budget_used(),
        .remote_drains = remote_drains(),
    };
}

void probe_take_totals(struct probe_totals *totals)
{
    struct malloc_totals t;
    malloc_totals(&t);
    *totals = (struct probe_totals){
        .in_use = t.in_use,
        .cached = t.cached,
        .set_aside = t.set_aside,
        .free_in_slabs = t.free_in_slabs,
        .slab_rest = t.slab_rest,
        .slab_bytes = t.slab_bytes,
        .large = t.large_bytes,
        .span_cache = t.span_cache_bytes,
        .warm = t.warm_bytes,
    };
}

void probe_forget(void)
{
    cache_trim_all();
    for (unsigned kind = 0; kind < ARENA_COUNT; kind++) {
        uint32_t share = region.retain[kind].share;
        region.retain[kind] = (struct retain){0};
        retain_init(&region.retain[kind], ((size_t)64 << 20) >> SLICE_SHIFT, share);
    }
}

bool probe_helper_spares_loader(void)
{
    atomic_store(&helper_wanted, true);
    helper_start(&_r_debug); /* which lies in the loader */
    return atomic_exchange(&helper_wanted, false);
}

unsigned probe_helper_rounds(unsigned most)
{
    struct helper_rounds rounds = {0};
    unsigned n = 0;
    while (n < most && helper_round(&rounds))
        n++;
    return n;
}

unsigned probe_slab_objects(const struct kmem_cache *cache)
{
    return cache->slab.objects;
}

void probe_set_capacity(struct kmem_cache *cache, unsigned capacity)
{
    cache->capacity = (uint16_t)capacity;
}

unsigned probe_slabs(const struct kmem_cache *cache)
{
    return cache->slab.slabs;
}

void probe_decay_sparse(bool long_enough)
{
    uint32_t usual = sheaf_config.decay_ms;
    sheaf_config.decay_ms = long_enough ? 0 : UINT32_MAX;
    probe_decay();
    probe_decay();
    sheaf_config.decay_ms = usual;
}

unsigned probe_node_of(const void *object)
{
    return region_node((uint32_t)slice_of(object));
}

uint64_t probe_node_counter(const struct kmem_cache *cache, enum probe_node_counter which)
{
    static const enum slot_counter counters[] = {COUNT_remote_free, COUNT_outbound_barn, COUNT_outbound_flush,
                                                 COUNT_alloc_node};
    uint64_t sum = 0;
    for (unsigned k = 0; k < cache_siblings(cache); k++)
        sum += counter_sum(cache_sibling(cache, k)->number, counters[which]);
    return sum;
}

unsigned probe_outbound(const struct kmem_cache *cache)
{
    unsigned n = 0;
    for (unsigned k = 0; k < cache_siblings(cache); k++)
        for (unsigned slot = 0; slot < slot_top; slot++) {
            struct kmem_cache *sibling = cache_sibling(cache, k);
            const struct sheaf *spare = spare_sheaf(slot_words(slot, word_id(sibling->number))->spare);
            if (spare && cache_is_far(sibling, slot))
                n += spare->count;
        }
    return n;
}

void probe_decay(void)
{
    cache_decay_idle(false);
}

/* The options of the preloaded object, for the same cases over the fallback and in little memory. */
void sheaf_configure(struct sheaf_config *config)
{
    options_read(config, environ);
}

void probe_learn_to_keep(void)
{
    region.retain[ARENA_SLAB].now = region.retain[ARENA_SLAB].most;
}

void probe_forget_learned(void)
{
    region.retain[ARENA_SLAB].now = region.retain[ARENA_SLAB].least;
}
