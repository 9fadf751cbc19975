#include "process/decay.h"
#include "cache/barns.h"
#include "cache/decay.h"
#include "cache/holes.h"
#include "cache/remote.h"
#include "cache/deferred/rcu.h"
#include "diagnostics/feature/quarantine.h"
#include "platform/os/clock.h"
#include "process/helper.h"
#include "process/limit.h"
#include "cache/slot/span_cache.h"
#include "platform/os/hooks.h"

/* The times of the last step by age and of the last step of any kind; the slabs' frontier, in slices, at the last
 * growth. */
static _Atomic uint32_t last_ms, last_step_ms, last_frontier;
static _Atomic uint64_t last_held; /* bytes in all barns after the last step */
static _Atomic uint64_t trims;

uint64_t decay_trims(void)
{
    return atomic_load_explicit(&trims, memory_order_relaxed);
}

/* ---- all caches, on demand ---- */

void cache_fold_all(void)
{
    if (!cache_layer_ready || !lock_acquire(lock_of(LOCK_DRAIN)))
        return;
    for (unsigned i = CACHE_FIRST; i < cache_top; i++)
        if (cache_in_use(cache_at(i)))
            remote_drain(cache_at(i), 0, read_once(slot_top), REMOTE_COUNT);
    lock_release(lock_of(LOCK_DRAIN));
}

/* The lock keeps caches from being destroyed meanwhile. */
void cache_publish_all(void)
{
    if (likely(hooks.publish == NULL))
        return;
    if (lock_acquire(lock_of(LOCK_DRAIN))) {
        for (unsigned i = CACHE_FIRST; i < cache_top; i++)
            if (cache_in_use(cache_at(i)))
                cache_publish(cache_at(i));
        lock_release(lock_of(LOCK_DRAIN));
    }
    cache_publish(NULL); /* the figures of the process: purged memory is in those of no cache */
}

void cache_drain_all(void)
{
    if (unlikely(sheaf_config.harden.quarantine))
        quarantine_drain(NULL);
    for (unsigned i = CACHE_FIRST; i < cache_top; i++)
        cache_drain(cache_at(i));
    span_cache_flush();
}

size_t cache_trim_all(void)
{
    atomic_fetch_add_explicit(&trims, 1, memory_order_relaxed);
    cache_drain_all();
    size_t given = region_purge(true);
    cache_publish_all();
    return given;
}

/* ---- a step ---- */

static void step(enum decay_reason why)
{
    if (unlikely(hooks.rcu_kick))
        rcu_age();
    if (!lock_acquire(lock_of(LOCK_DRAIN)))
        return;
    for (unsigned i = CACHE_FIRST; i < cache_top; i++)
        for (unsigned slot = 0; cache_in_use(cache_at(i)) && slot < read_once(slot_top); slot++)
            decay_slot(cache_at(i), slot);
    uint64_t held = 0;
    for (unsigned i = CACHE_FIRST; i < cache_top; i++)
        if (cache_in_use(cache_at(i)))
            held += decay_barns(cache_at(i), why);
    for (unsigned slot = 0; slot < read_once(slot_top); slot++)
        if (slot_writable(slot))
            write_once(slot_head(slot)->barn_traffic, 0);
    atomic_store_explicit(&last_held, held, memory_order_relaxed);
    atomic_store_explicit(&last_step_ms, clock_ms(), memory_order_relaxed);
    lock_release(lock_of(LOCK_DRAIN));
    if (why == DECAY_AGED)
        span_cache_flush();
    region_purge(false);
}

void cache_decay_idle(bool all)
{
    step(DECAY_AGED);
    region_purge_idle(all);
    cache_publish_all();
}

static bool few_are_out(const struct kmem_cache *cache)
{
    uint64_t objects = (uint64_t)read_once(cache->slab.slabs) * cache->slab.objects;
    return objects && (objects - read_once(cache->slab.free)) < objects / 2;
}

void decay_after_burst(void)
{
    bool comes_again = region_retains_learned();
    if (!lock_try(lock_of(LOCK_DRAIN)))
        return;
    if (!burst_fell()) { /* another thread has just handled the same fall */
        lock_release(lock_of(LOCK_DRAIN));
        return;
    }
    for (unsigned i = CACHE_FIRST; i < read_once(cache_top); i++) {
        struct kmem_cache *cache = cache_at(i);
        if (!cache_in_use(cache))
            continue;
        /* an instrumented cache has no sheaves, and a drain would release its quarantine too early */
        if (!comes_again && !cache->instruments && few_are_out(cache))
            cache_drain_locked(cache);
        else
            slab_shrink(&cache->slab);
        holes_now(cache);
        cache_publish(cache);
    }
    burst_handled();
    lock_release(lock_of(LOCK_DRAIN));
    if (!comes_again)
        region_purge_fallen();
    cache_publish(NULL);
}

static bool aged(void)
{
    uint32_t now = clock_ms();
    uint32_t last = atomic_load_explicit(&last_ms, memory_order_relaxed);
    return now - last >= sheaf_config.decay_ms && atomic_compare_exchange_strong(&last_ms, &last, now) && last;
}

/*
 * Whether slabs grew by 2 MiB and a thirty-second: before they grow further, unused objects must come back. The
 * decay time alone is too long for a program whose sizes change within it (docs/design-notes.md, "Decay, sparse
 * caches, holes").
 */
#define GROWN_LEAST 32 /* slices: 2 MiB */
static bool grown(void)
{
    uint32_t now = region_slab_frontier();
    uint32_t last = atomic_load_explicit(&last_frontier, memory_order_relaxed);
    uint32_t step = last / 32 > GROWN_LEAST ? last / 32 : GROWN_LEAST;
    return now - last >= step && atomic_compare_exchange_strong(&last_frontier, &last, now);
}

/*
 * Whether twice the bytes that barns hold, and TRAFFIC_LEAST, went to them from this slot since the last step. A
 * load that uses all of them has used them by then, and the rest belongs to classes that went out of use. Steps
 * are at least STEP_LEAST_MS apart, so that a load has time to use its sheaves.
 */
#define TRAFFIC_LEAST (2ull << 20)
#define STEP_LEAST_MS 16
static bool churned(unsigned slot)
{
    uint64_t held = atomic_load_explicit(&last_held, memory_order_relaxed);
    return read_once(slot_head(slot)->barn_traffic) > 2 * held + TRAFFIC_LEAST &&
           clock_ms() - atomic_load_explicit(&last_step_ms, memory_order_relaxed) >= STEP_LEAST_MS;
}

void decay_poll(unsigned slot)
{
    if (unlikely(read_once(slot_paused)) && foreign_sweep())
        slot_resume_fast();
    if (unlikely(region_in_use() >= LIMIT_POLL_FROM))
        limit_poll();
    if (unlikely(hooks.poll_control != NULL))
        hooks.poll_control();
    if (helper_may() || HELPER_COUNTS || unlikely(hooks.poll_control != NULL))
        helper_poll();
    if (!sheaf_config.decay_ms)
        return;
    enum decay_reason why = aged()          ? DECAY_AGED
                            : grown()       ? DECAY_GROWN
                            : churned(slot) ? DECAY_CHURNED
                                            : DECAY_NOT_DUE;
    if (why == DECAY_NOT_DUE)
        return;
    step(why);
    cache_publish_all();
}
