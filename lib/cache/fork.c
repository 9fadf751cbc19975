#include "cache/decay.h"
#include "cache/rcu.h"
#include "cache/takeover.h"

/*
 * Fork at any moment. Lock order: setup_lock, takeover_lock, the region's, those of the caches by number. All are
 * taken before, so that no other thread is inside; afterwards the parent releases them and the child forgets them. A
 * lock that the forking thread holds already (it forks in a signal handler over the holder) is left alone: the holder
 * goes on in both.
 *
 * What the other threads had in hand outside any lock (a sheaf between two places) is lost to the child. A slot that
 * one of them was folding has TOP_HELD: the child frees it. Slots, barns and pool are changed by single words only.
 */

static bool took_setup, took_takeover, took_region;
static uint64_t took[CACHE_MAX / 64];

/*
 * Who has taken them, and how many forks of the same thread lie between: _Fork in a signal handler over fork() finds
 * all locks held by itself, and leaves them to the fork below.
 */
static _Atomic uint64_t forker;
static unsigned depth;

/* For lock_acquire_slow(): only locks later in the order than all that this thread holds. */
bool cache_may_wait(const struct lock *lock)
{
    bool is_cache = lock >= &caches[0].slab.lock && lock <= &caches[CACHE_MAX - 1].slab.lock;
    bool is_first = lock == &cache_setup_lock;
    if (lock_held_by_self(&cache_setup_lock) && is_first)
        return false;
    if (lock_held_by_self(&takeover_lock) && (is_first || lock == &takeover_lock))
        return false;
    if (region_locked_by_self() && !is_cache)
        return false;
    for (unsigned i = CACHE_FIRST; i < read_once(cache_top); i++)
        if (lock_held_by_self(&caches[i].slab.lock) && (!is_cache || lock <= &caches[i].slab.lock))
            return false;
    return true;
}

/*
 * In a signal handler over a holder not every lock may be waited for. Then what is free is taken; what another thread
 * is changing right now may be half changed in the child, as with any fork in a handler.
 */
void cache_fork_prepare(void)
{
    if (atomic_load_explicit(&forker, memory_order_relaxed) == lock_self()) {
        depth++;
        return;
    }
    bool setup = lock_acquire(&cache_setup_lock), takeover = lock_acquire(&takeover_lock);
    took_setup = setup;
    took_takeover = takeover;
    took_region = region_lock();
    for (unsigned i = CACHE_FIRST; i < cache_top; i++) {
        uint64_t bit = 1ull << (i % 64);
        if (lock_acquire(&caches[i].slab.lock))
            took[i / 64] |= bit;
        else
            took[i / 64] &= ~bit;
    }
    atomic_store_explicit(&forker, lock_self(), memory_order_relaxed);
}

void cache_fork_parent(void)
{
    if (depth) {
        depth--;
        return;
    }
    atomic_store_explicit(&forker, 0, memory_order_relaxed);
    for (unsigned i = cache_top; i-- > CACHE_FIRST;)
        if (took[i / 64] >> (i % 64) & 1)
            lock_release(&caches[i].slab.lock);
    if (took_region)
        region_unlock();
    bool setup = took_setup; /* the next fork writes it once takeover_lock is free */
    if (took_takeover)
        lock_release(&takeover_lock);
    if (setup)
        lock_release(&cache_setup_lock);
}

static void free_held_slots(void)
{
    for (unsigned slot = 0; slot < slot_top; slot++) {
        if (!slot_writable(slot))
            continue;
        atomic_store(&slot_head(slot)->lock, 0);
        for (unsigned i = CACHE_FIRST; i < cache_top; i++)
            if (cache_in_use(&caches[i]) && top_held(slot_words(slot, SLOT_ID(i))->top))
                slot_words(slot, SLOT_ID(i))->top = 0;
    }
}

void cache_fork_child(void)
{
    if (depth) { /* the fork below still holds them, here too */
        depth--;
        return;
    }
    atomic_store_explicit(&forker, 0, memory_order_relaxed);
    /* ours from below a handler stay; all others are ours to forget, their owners are not here */
    for (unsigned i = CACHE_FIRST; i < cache_top; i++)
        if (took[i / 64] >> (i % 64) & 1 || !lock_held_by_self(&caches[i].slab.lock))
            lock_reset(&caches[i].slab.lock);
    if (took_region || !region_locked_by_self())
        region_reset();
    if (took_takeover || !lock_held_by_self(&takeover_lock)) {
        free_held_slots();
        lock_reset(&takeover_lock);
    }
    if (unlikely(rcu_kick))
        rcu_fork_child(); /* knows no lock */
    if (took_setup || !lock_held_by_self(&cache_setup_lock))
        lock_reset(&cache_setup_lock);
    if (unlikely(sheaf_config.helper))
        helper_forget();
}
