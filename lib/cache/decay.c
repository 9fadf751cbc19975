#include "cache/decay.h"
#include "cache/kmem_cache.h"
#include "cache/takeover.h"
#include "os/clock.h"

/* Giving memory back: all of it on demand, what is unused by age. No lock is held on entry or exit. */

#define LOOK_EVERY 32 /* slow paths between two looks at the clock */

static _Atomic uint32_t last_ms;
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
        if (!cache_flush_sheaf(cache, 0, sheaf)) {
            barn_put(barn, sheaf, true);
            return;
        }
        empty_sheaf_free(sheaf);
    }
}

void cache_drain(struct kmem_cache *cache)
{
    if (!cache_in_use(cache) || !lock_acquire(&takeover_lock))
        return;
    takeover(cache, 0, read_once(slot_top), TAKEOVER_EMPTY);
    lock_release(&takeover_lock);
    for (int i = 0; i < DOMAINS; i++)
        empty_barn(cache, &cache->barns[i], UINT64_MAX);
    slab_shrink(&cache->slab);
    if (cache_publish)
        cache_publish(cache);
}

void cache_drain_slot(unsigned slot)
{
    if (!lock_acquire(&takeover_lock))
        return;
    for (unsigned i = CACHE_FIRST; i < cache_top; i++)
        if (cache_in_use(&caches[i]))
            takeover(&caches[i], slot, slot + 1, TAKEOVER_EMPTY);
    lock_release(&takeover_lock);
}

void cache_fold_all(void)
{
    if (!cache_layer_ready || !lock_acquire(&takeover_lock))
        return;
    for (unsigned i = CACHE_FIRST; i < cache_top; i++)
        if (cache_in_use(&caches[i]))
            takeover(&caches[i], 0, read_once(slot_top), TAKEOVER_COUNT);
    lock_release(&takeover_lock);
}

size_t cache_trim_all(void)
{
    atomic_fetch_add_explicit(&trims, 1, memory_order_relaxed);
    for (unsigned i = CACHE_FIRST; i < cache_top; i++)
        cache_drain(&caches[i]);
    return region_purge(true);
}

/* A slot is idle when none of its words changed since the last step: the count of pops is among them. */
static bool slot_idle(unsigned slot)
{
    uint64_t sum = 0;
    bool holds = false;
    for (unsigned i = CACHE_FIRST; i < cache_top; i++) {
        const struct slot_words *words = slot_words(slot, SLOT_ID(i));
        uint64_t top = read_once(words->top);
        sum += top * (2 * i + 1);
        holds |= top_offset(top) != 0 || (uint32_t)atomic_load_explicit(&words->spare, memory_order_relaxed);
    }
    bool idle = holds && slot_head(slot)->idle_sum == sum;
    slot_head(slot)->idle_sum = sum;
    return idle;
}

void cache_decay_force(void)
{
    for (unsigned slot = 0; slot < read_once(slot_top); slot++)
        if (slot_idle(slot))
            cache_drain_slot(slot);
    for (unsigned i = CACHE_FIRST; i < cache_top; i++) {
        struct kmem_cache *cache = &caches[i];
        if (!cache_in_use(cache))
            continue;
        for (int d = 0; d < DOMAINS; d++)
            if (barn_objects(&cache->barns[d]))
                empty_barn(cache, &cache->barns[d], barn_decay(&cache->barns[d], cache->barn_least));
        slab_shrink(&cache->slab);
    }
    region_purge(false);
}

void cache_decay(unsigned slot)
{
    /* racy on purpose, and in the slot: one counter for all would go from CPU to CPU */
    if (unlikely(!slot_commit(slot)))
        return;
    uint64_t *calls = &slot_head(slot)->slow_calls;
    uint64_t n = read_once(*calls) + 1;
    write_once(*calls, n);
    if (likely(n % LOOK_EVERY) || !sheaf_config.decay_ms)
        return;
    uint32_t now = clock_ms();
    uint32_t last = atomic_load_explicit(&last_ms, memory_order_relaxed);
    if (now - last < sheaf_config.decay_ms)
        return;
    if (!atomic_compare_exchange_strong(&last_ms, &last, now) || !last)
        return;
    cache_decay_force();
    if (sheaf_config.helper)
        helper_arm();
}
