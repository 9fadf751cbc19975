#include "cache/decay.h"
#include "process/helper.h"
#include "cache/kmem_cache.h"
#include "process/limit.h"
#include "node/node.h"
#include "feature/quarantine.h"
#include "deferred/rcu.h"
#include "cache/sparse.h"
#include "slot/stash.h"
#include "cache/takeover.h"
#include "os/clock.h"

/* Giving memory back: all of it on demand, what is unused by age. No lock is held on entry or exit. */

#define LOOK_EVERY 32 /* slow paths between two looks at the clock */

/* What calls for a step. */
enum why { NOT_YET, AGED, GROWN, CHURNED };

/* The last step by age; of any kind; the units that slabs took by then. */
static _Atomic uint32_t last_ms, last_step_ms, last_frontier;
static _Atomic uint64_t last_held; /* bytes in all barns after the last step */
static _Atomic uint64_t trims;

uint64_t decay_trims(void)
{
    return atomic_load_explicit(&trims, memory_order_relaxed);
}

static void empty_barn(struct kmem_cache *cache, struct barn *barn, uint64_t objects)
{
    struct sheaf *sheaf;
    while (objects > 0 && (sheaf = barn_get(barn))) {
        objects -= objects < sheaf->count ? objects : sheaf->count;
        if (!cache_empty_sheaf(cache, 0, sheaf, barn))
            return;
    }
}

void cache_drain_locked(struct kmem_cache *cache)
{
    takeover(cache, 0, read_once(slot_top), TAKEOVER_EMPTY);
    if (unlikely(sheaf_config.harden.quarantine))
        quarantine_drain(cache);
    for (int i = 0; i < DOMAINS; i++)
        empty_barn(cache, cache_barn(cache, i), UINT64_MAX);
    slab_shrink(&cache->slab);
    if (cache_publish)
        cache_publish(cache);
}

/* The lock of takeovers is held all the time, so that no cache is destroyed under our hands. */
void cache_drain(struct kmem_cache *cache)
{
    if (!lock_acquire(lock_of(LOCK_TAKEOVER)))
        return;
    if (cache_in_use(cache))
        cache_drain_locked(cache);
    lock_release(lock_of(LOCK_TAKEOVER));
}

void cache_fold_all(void)
{
    if (!cache_layer_ready || !lock_acquire(lock_of(LOCK_TAKEOVER)))
        return;
    for (unsigned i = CACHE_FIRST; i < cache_top; i++)
        if (cache_in_use(&caches[i]))
            takeover(&caches[i], 0, read_once(slot_top), TAKEOVER_COUNT);
    lock_release(lock_of(LOCK_TAKEOVER));
}

/*
 * A record must not go on counting what was given back since, perhaps by a helper thread in a program that sleeps.
 * Slow paths publish their own cache only. The lock keeps caches from being destroyed meanwhile.
 */
static void publish_all(void)
{
    if (likely(cache_publish == NULL) || !lock_acquire(lock_of(LOCK_TAKEOVER)))
        return;
    for (unsigned i = CACHE_FIRST; i < cache_top; i++)
        if (cache_in_use(&caches[i]) && cache_publish)
            cache_publish(&caches[i]);
    lock_release(lock_of(LOCK_TAKEOVER));
}

size_t cache_trim_all(void)
{
    atomic_fetch_add_explicit(&trims, 1, memory_order_relaxed);
    if (unlikely(sheaf_config.harden.quarantine))
        quarantine_drain(NULL);
    for (unsigned i = CACHE_FIRST; i < cache_top; i++)
        cache_drain(&caches[i]);
    stash_flush();
    size_t given = region_purge(true);
    publish_all();
    return given;
}

/*
 * A slot's sheaves of one cache are idle if its word, the account of its ends and the count of allocations are
 * unchanged since the last step. (Each class by itself: a slot is seldom idle, but a program that changes the sizes
 * it uses leaves sheaves behind whose objects keep slabs from going back.)
 */
static void drain_idle(struct kmem_cache *cache, unsigned slot)
{
    const struct slot_words *words = slot_words(slot, SLOT_ID(cache->number));
    uint64_t top = read_once(words->top);
    if (!top && !(uint32_t)atomic_load_explicit(&words->spare, memory_order_relaxed))
        return;
    if (unlikely(cache->nodes) && node_is_far(cache, slot)) { /* what goes home does so at each step */
        struct sheaf *outbound = cache_take_spare(slot, SLOT_ID(cache->number));
        if (outbound)
            node_send(cache, slot, outbound);
        takeover(cache, slot, slot + 1, TAKEOVER_EMPTY);
        return;
    }
    uint32_t *seen = &slot_seen(slot)[cache->number];
    uint64_t both = top + read_once(*counter_at(slot, cache->number, COUNT_alloc_fastpath));
    if (!cache->lifo && top_push_end(top) > END_HELD) /* exchanges count there */
        both += (uint64_t)read_once(sheaf_containing(top_push_end(top))->link) << 16;
    uint32_t now = (uint32_t)((both * 0x9e3779b97f4a7c15ull) >> 32);
    if (read_once(*seen) == now)
        takeover(cache, slot, slot + 1, TAKEOVER_EMPTY);
    else
        write_once(*seen, now);
}

/*
 * How many objects a barn can spare: those that nobody needed since the last step. When memory grows: all, where a
 * cache has more objects in its barn than in use, because those of a class that went out of use keep slabs from the
 * class that comes into use.
 */
static uint64_t can_spare(struct kmem_cache *cache, struct barn *barn, enum why why)
{
    uint64_t unneeded = barn_decay(barn, why == AGED);
    uint64_t held = barn_objects(barn);
    uint64_t out = (uint64_t)read_once(cache->slab.slabs) * cache->slab.objects - read_once(cache->slab.free);
    return why == GROWN && out < 2 * held ? held : unneeded;
}

/* Returns the bytes that barns still hold. */
static uint64_t decay_cache(struct kmem_cache *cache, enum why why)
{
    uint64_t held = 0;
    for (int d = 0; d < DOMAINS; d++) {
        struct barn *barn = cache_barn(cache, d);
        if (!barn_objects(barn))
            continue;
        empty_barn(cache, barn, can_spare(cache, barn, why));
        held += barn_objects(barn) * cache->slab.size;
    }
    slab_shrink(&cache->slab);
    if (unlikely(cache->sparse_since || cache_is_sparse(cache)))
        sparse_age(cache);
    return held;
}

static void step(enum why why)
{
    if (unlikely(rcu_kick))
        rcu_age();
    if (!lock_acquire(lock_of(LOCK_TAKEOVER)))
        return;
    for (unsigned i = CACHE_FIRST; i < cache_top; i++)
        for (unsigned slot = 0; cache_in_use(&caches[i]) && slot < read_once(slot_top); slot++)
            drain_idle(&caches[i], slot);
    uint64_t held = 0;
    for (unsigned i = CACHE_FIRST; i < cache_top; i++)
        if (cache_in_use(&caches[i]))
            held += decay_cache(&caches[i], why);
    for (unsigned slot = 0; slot < read_once(slot_top); slot++)
        if (slot_writable(slot))
            write_once(slot_head(slot)->barn_traffic, 0);
    atomic_store_explicit(&last_held, held, memory_order_relaxed);
    atomic_store_explicit(&last_step_ms, clock_ms(), memory_order_relaxed);
    lock_release(lock_of(LOCK_TAKEOVER));
    if (why == AGED)
        stash_flush();
    region_purge(false);
}

void cache_decay_idle(bool all)
{
    step(AGED);
    region_purge_idle(all);
    publish_all();
}

static bool aged(void)
{
    uint32_t now = clock_ms();
    uint32_t last = atomic_load_explicit(&last_ms, memory_order_relaxed);
    return now - last >= sheaf_config.decay_ms && atomic_compare_exchange_strong(&last_ms, &last, now) && last;
}

/*
 * Slabs grew by a thirtieth: before they grow further, what is not needed must come back. Time alone is too slow for
 * that: a store of 64 MiB whose entries change size five times in 1.5 s grew to 309 MiB, with this to 207.
 */
#define GROWN_LEAST 32 /* units: 2 MiB */
static bool grown(void)
{
    uint32_t now = region_slab_frontier();
    uint32_t last = atomic_load_explicit(&last_frontier, memory_order_relaxed);
    uint32_t step = last / 32 > GROWN_LEAST ? last / 32 : GROWN_LEAST;
    return now - last >= step && atomic_compare_exchange_strong(&last_frontier, &last, now);
}

/*
 * Twice what barns hold went to them since the last step: then a load that uses all they hold has used it, and what
 * was not touched belongs to classes that went out of use. (Strings that grow by a byte at a time through twenty
 * classes left a barn behind in each: 46 MiB, where they now take 33.) Not more often than it takes a load to show
 * what it uses: with a step each 2 MiB of traffic, batches of mixed sizes took 6% longer and the strings 5.
 */
#define TRAFFIC_LEAST (2ull << 20)
#define STEP_LEAST_MS 16
static bool churned(unsigned slot)
{
    uint64_t held = atomic_load_explicit(&last_held, memory_order_relaxed);
    return read_once(slot_head(slot)->barn_traffic) > 2 * held + TRAFFIC_LEAST &&
           clock_ms() - atomic_load_explicit(&last_step_ms, memory_order_relaxed) >= STEP_LEAST_MS;
}

void cache_decay(unsigned slot)
{
    /* racy on purpose, and in the slot: one counter for all would go from CPU to CPU */
    if (unlikely(!slot_commit(slot)))
        return;
    uint64_t *calls = &slot_head(slot)->slow_calls;
    uint64_t n = read_once(*calls) + 1;
    write_once(*calls, n);
    if (likely(n % LOOK_EVERY))
        return;
    if (unlikely(region_in_use() >= LIMIT_LOOK_FROM))
        limit_look();
    if (!sheaf_config.decay_ms)
        return;
    if (helper_may())
        helper_look();
    enum why why = aged() ? AGED : grown() ? GROWN : churned(slot) ? CHURNED : NOT_YET;
    if (why == NOT_YET)
        return;
    step(why);
    publish_all();
}
