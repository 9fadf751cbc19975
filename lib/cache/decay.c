#include "cache/decay.h"
#include "cache/holes.h"
#include "cache/sheaves.h"
#include "cache/remote.h"
#include "platform/os/hooks.h"

#define POLL_EVERY 32 /* slow paths of a slot between two looks at the clock */

void cache_decay(unsigned slot)
{
    if (unlikely(!slot_commit(slot)))
        return;
    /* racy on purpose, and per slot: the cache line of a shared counter would move from CPU to CPU */
    uint64_t *calls = &slot_head(slot)->slow_calls;
    uint64_t n = read_once(*calls) + 1;
    write_once(*calls, n);
    if (unlikely(n % POLL_EVERY == 0)) {
        hooks.poll(slot);
        cache_publish(NULL);
    }
}

/* ---- on demand ---- */

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
    remote_drain(cache, 0, read_once(slot_top), REMOTE_EMPTY);
    __typeof__(cache->ops->release_kept) release_kept = cache_op(cache, release_kept);
    if (unlikely(release_kept != NULL))
        release_kept(cache);
    for (unsigned i = 0; i < slot_domains(); i++)
        empty_barn(cache, cache_barn(cache, i), UINT64_MAX);
    slab_shrink(&cache->slab);
    cache_publish(cache);
}

void cache_drain(struct kmem_cache *cache)
{
    if (!lock_acquire(lock_of(LOCK_DRAIN)))
        return;
    if (cache_in_use(cache))
        cache_drain_locked(cache);
    lock_release(lock_of(LOCK_DRAIN));
}

/* ---- by age ---- */

/* Compares a hash of the word, the account of its ends and the count of fast allocations with that of the last
 * step. */
void decay_slot(struct kmem_cache *cache, unsigned slot)
{
    const struct slot_words *words = slot_words(slot, word_id(cache->number));
    uint64_t top = read_once(words->top);
    if (!top && !(uint32_t)atomic_load_explicit(&words->spare, memory_order_relaxed))
        return;
    if (cache_is_far(cache, slot)) {
        struct sheaf *collected = cache_take_spare(slot, word_id(cache->number));
        if (collected)
            cache_op(cache, send_home)(cache, slot, collected);
        remote_drain(cache, slot, slot + 1, REMOTE_EMPTY);
        return;
    }
    uint32_t *seen = &slot_seen(slot)[cache->number];
    uint64_t both = top + read_once(*counter_at(slot, cache->number, COUNT_alloc_fastpath));
    if (!cache->lifo && top_push_end(top).at > END_CLAIMED) /* an exchange changes the account */
        both += (uint64_t)read_once(sheaf_containing(top_push_end(top))->pushes) << 16;
    uint32_t now = (uint32_t)((both * 0x9e3779b97f4a7c15ull) >> 32);
    if (read_once(*seen) == now)
        remote_drain(cache, slot, slot + 1, REMOTE_EMPTY);
    else
        write_once(*seen, now);
}

/*
 * The number of objects that a barn can spare: those that were not needed since the last step. While slabs grow, a
 * cache with more objects in the barn than in use can spare all of them, because a class that goes out of use
 * would keep slabs from the class that comes into use.
 */
static uint64_t can_spare(struct kmem_cache *cache, struct barn *barn, enum decay_reason why)
{
    uint64_t unneeded = barn_decay(barn, why == DECAY_AGED);
    uint64_t held = barn_objects(barn);
    uint64_t out = (uint64_t)read_once(cache->slab.slabs) * cache->slab.objects - read_once(cache->slab.free);
    return why == DECAY_GROWN && out < 2 * held ? held : unneeded;
}

uint64_t decay_barns(struct kmem_cache *cache, enum decay_reason why)
{
    uint64_t held = 0;
    for (unsigned d = 0; d < slot_domains(); d++) {
        struct barn *barn = cache_barn(cache, d);
        if (!barn_objects(barn))
            continue;
        empty_barn(cache, barn, can_spare(cache, barn, why));
        held += barn_objects(barn) * cache->slab.size;
    }
    slab_shrink(&cache->slab);
    holes_age(cache);
    return held;
}
