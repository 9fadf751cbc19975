#include "cache/decay.h"
#include "cache/rcu.h"
#include "cache/takeover.h"

/*
 * Fork at any moment. Lock order: by number (region/locks.h): the setup's, that of takeovers, the region's, those of
 * caches. All are taken before, so that no other thread is inside; afterwards the parent releases them and the child
 * forgets them. A lock that the forking thread holds already (it forks in a signal handler over the holder) is left
 * alone: the holder goes on in both.
 *
 * What the other threads had in hand outside any lock (a sheaf between two places) is lost to the child. A slot that
 * one of them was folding has TOP_HELD: the child frees it. Slots, barns and pool are changed by single words only.
 */

/*
 * Who has taken them, and how many forks of the same thread lie between: _Fork in a signal handler over fork() finds
 * all locks held by itself, and leaves them to the fork below.
 */
static unsigned depth;

/*
 * Which of them the fork did not take, because this thread held it already or must not wait for it: bits by number.
 * Rare, so that this page is seldom written: all that every fork writes lies on that of the locks.
 */
static uint64_t left[CACHE_MAX / 64];
static unsigned top; /* of the numbers that it looked at */

static _Atomic uint64_t *forker(void)
{
    return &lock_of(LOCK_FORKER)->word;
}

static void note(unsigned number, bool taken)
{
    uint64_t *word = &left[number / 64], bit = 1ull << (number % 64);
    if (unlikely(!taken))
        *word |= bit;
    else if (unlikely(*word & bit))
        *word &= ~bit;
}

static bool took(unsigned number)
{
    return !(left[number / 64] >> (number % 64) & 1);
}

/* For lock_acquire_slow(): only locks later in the order than all that this thread holds. */
bool cache_may_wait(const struct lock *lock)
{
    unsigned number = lock_number(lock);
    for (unsigned i = number; i < read_once(cache_top); i++)
        if (i != LOCK_FORKER && lock_held_by_self(lock_of(i)))
            return false;
    return true;
}

/*
 * In a signal handler over a holder not every lock may be waited for. Then what is free is taken; what another thread
 * is changing right now may be half changed in the child, as with any fork in a handler.
 *
 * With the first two locks no other fork writes `left`, and no cache comes or goes.
 */
void cache_fork_prepare(void)
{
    if (atomic_load_explicit(forker(), memory_order_relaxed) == lock_self()) {
        depth++;
        return;
    }
    bool setup = lock_acquire(lock_of(LOCK_SETUP)), takeover = lock_acquire(lock_of(LOCK_TAKEOVER));
    note(LOCK_SETUP, setup);
    note(LOCK_TAKEOVER, takeover);
    note(LOCK_REGION, lock_acquire(lock_of(LOCK_REGION)));
    if (unlikely(top != cache_top))
        top = cache_top;
    for (unsigned i = CACHE_FIRST; i < top; i++)
        note(i, lock_acquire(lock_of(i)));
    atomic_store_explicit(forker(), lock_self(), memory_order_relaxed);
}

void cache_fork_parent(void)
{
    if (depth) {
        depth--;
        return;
    }
    atomic_store_explicit(forker(), 0, memory_order_relaxed);
    for (unsigned i = top; i-- > CACHE_FIRST;)
        if (took(i))
            lock_release(lock_of(i));
    if (took(LOCK_REGION))
        lock_release(lock_of(LOCK_REGION));
    bool setup = took(LOCK_SETUP); /* the next fork writes it once the lock of takeovers is free */
    if (took(LOCK_TAKEOVER))
        lock_release(lock_of(LOCK_TAKEOVER));
    if (setup)
        lock_release(lock_of(LOCK_SETUP));
}

static void free_held_slots(void)
{
    for (unsigned slot = 0; slot < slot_top; slot++) {
        if (!slot_writable(slot))
            continue;
        if (atomic_load_explicit(&slot_head(slot)->lock, memory_order_relaxed)) /* or its page would be copied */
            atomic_store(&slot_head(slot)->lock, 0);
        for (unsigned i = CACHE_FIRST; i < cache_top; i++)
            if (cache_in_use(&caches[i]) && top_held(slot_words(slot, SLOT_ID(i))->top))
                slot_words(slot, SLOT_ID(i))->top = 0;
    }
}

/* Ours from below a handler stay; all others are ours to forget, their owners are not here. */
static void forget(unsigned number)
{
    if (!took(number) && lock_held_by_self(lock_of(number)))
        return;
    lock_reset(lock_of(number));
}

void cache_fork_child(void)
{
    if (depth) { /* the fork below still holds them, here too */
        depth--;
        return;
    }
    atomic_store_explicit(forker(), 0, memory_order_relaxed);
    for (unsigned i = CACHE_FIRST; i < cache_top; i++)
        forget(i);
    forget(LOCK_REGION);
    if (took(LOCK_TAKEOVER) || !lock_held_by_self(lock_of(LOCK_TAKEOVER)))
        free_held_slots();
    forget(LOCK_TAKEOVER);
    if (unlikely(rcu_kick))
        rcu_fork_child(); /* knows no lock */
    forget(LOCK_SETUP);
    if (unlikely(sheaf_config.helper))
        helper_forget();
}
