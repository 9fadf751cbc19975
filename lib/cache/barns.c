#include "cache/barns.h"
#include "cache/sheaves.h"
#include "platform/os/cpu.h"

#define DRAIN_SHEAVES 4 /* sheaves that one call of barn_drain_some() flushes */

void barn_drain_some(struct kmem_cache *cache, unsigned slot, struct barn *barn)
{
    for (int i = 0; i < DRAIN_SHEAVES; i++) {
        struct sheaf *sheaf = barn_get(barn);
        if (!sheaf || !cache_empty_sheaf(cache, slot, sheaf, barn))
            return;
    }
}

/*
 * All barns together hold at most what one barn may grow to, an eighth of that more for each CPU, and a share of the
 * memory in slabs. A program with one or two hot classes never meets this bound, and one whose classes change does
 * not keep a full barn for each.
 */
#define BOUND_SHARE 64

static uint64_t held_by(const struct kmem_cache *cache)
{
    uint64_t objects = 0;
    for (unsigned d = 0; d < slot_domains(); d++)
        objects += barn_objects(cache_barn(cache, d));
    return objects * cache->slab.size;
}

static uint64_t bound(void)
{
    return sheaf_config.barn_max * (8 + cpu_allowed_count) / 8 +
           (read_once(region_stats.slab_slices) << SLICE_SHIFT) / BOUND_SHARE;
}

/*
 * Flush the cache's share of the excess: half of each barn, or all that was not needed since the last step of decay
 * if that is more. Returns the bytes flushed.
 */
static uint64_t flush_share(struct kmem_cache *cache, uint64_t excess)
{
    uint64_t given = 0;
    for (unsigned d = 0; d < slot_domains() && given < excess; d++) {
        struct barn *barn = cache_barn(cache, d);
        uint64_t held = barn_objects(barn), low = atomic_load_explicit(&barn->low, memory_order_relaxed);
        uint64_t left = (excess - given) / cache->slab.size + 1;
        uint64_t share = low < held && low > held / 2 ? low : (held + 1) / 2;
        share = share < left ? share : left;
        struct sheaf *sheaf;
        for (uint64_t n = 0; n < share && (sheaf = barn_get(barn));) {
            unsigned objects = sheaf->count;
            if (!cache_empty_sheaf(cache, 0, sheaf, barn))
                break;
            n += objects;
            given += (uint64_t)objects * cache->slab.size;
        }
    }
    return given;
}

/* A different cache is the first each time, so that none is always flushed. The remote drain lock is held, so that no
 * cache is destroyed meanwhile. */
static void flush_excess(uint64_t excess)
{
    static _Atomic unsigned turn;
    unsigned top = read_once(cache_top);
    unsigned first = atomic_fetch_add_explicit(&turn, 7, memory_order_relaxed);
    uint64_t given = 0;
    for (unsigned i = 0; i < top - CACHE_FIRST && given < excess; i++) {
        struct kmem_cache *cache = cache_at(CACHE_FIRST + (first + i) % (top - CACHE_FIRST));
        if (!cache_in_use(cache))
            continue;
        uint64_t share = flush_share(cache, excess - given);
        given += share;
        if (share)
            cache_publish(cache);
    }
}

_Atomic uint32_t burst_mark;

void burst_handled(void)
{
    uint32_t slices = (uint32_t)read_once(region_stats.slab_slices);
    atomic_store_explicit(&burst_mark, slices >= SMALL_HEAP ? slices - slices / 8 : 0, memory_order_relaxed);
}

void barns_poll(void)
{
    uint64_t held = 0, most = bound();
    for (unsigned i = CACHE_FIRST; i < read_once(cache_top); i++)
        if (cache_in_use(cache_at(i)))
            held += held_by(cache_at(i));
    /* if the lock is taken, decay or another thread in this function is already flushing */
    if (held > most && lock_try(lock_of(LOCK_DRAIN))) {
        flush_excess(held - most);
        lock_release(lock_of(LOCK_DRAIN));
    }
    uint32_t half = (uint32_t)read_once(region_stats.slab_slices) / 2;
    if (half > atomic_load_explicit(&burst_mark, memory_order_relaxed))
        atomic_store_explicit(&burst_mark, half, memory_order_relaxed);
}
