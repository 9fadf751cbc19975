#include "process/fork.h"
#include "cache/kmem_cache.h"
#include "process/helper.h"
#include "deferred/rcu.h"
#include "cache/takeover.h"
#include "os/syscall.h"

#include <signal.h>

/*
 * Fork at any moment. Lock order: by number (space/locks.h): the setup's, that of takeovers, the region's, those of
 * caches. All are taken before, so that no other thread is inside; afterwards the parent releases them and the child
 * forgets them. A lock that the forking thread holds already (it forks in a signal handler over the holder) is left
 * alone: the holder goes on in both.
 *
 * Several threads may be at it: one waits for a lock whose holder was interrupted by a handler that forks, which goes
 * around the locks that the first has. So what a fork took stands in the words of the locks (LOCK_BY_FORK), and what
 * it keeps beside them is written when it holds the last lock in the order, which only one can.
 *
 * Signals are blocked from before the first lock to after the last: else a handler that forks would find half of them
 * taken by its own thread, and would neither have all nor know which to give back.
 *
 * What the other threads had in hand outside any lock (a sheaf between two places) is lost to the child. Slots, barns
 * and pool are changed by single words only. A take-over holds its lock, so that its ends are held only when the fork
 * could not take that lock; the child then gives the ends back, without their sheaves.
 */

/*
 * Who has taken them, and how many forks of the same thread lie between: a handler of fork that forks finds all locks
 * held by itself, and leaves them to the fork below.
 */
static unsigned depth;

static _Atomic uint64_t *forker(void)
{
    return &lock_of(LOCK_FORKER)->word;
}

/* The signal mask that it had; beside the words of locks, so that the fork writes no further page. */
static uint64_t *forker_mask(void)
{
    return &lock_of(LOCK_FORKER)->waits;
}

/* The thread's signal mask; returns what it was. */
static uint64_t set_signals(uint64_t mask)
{
    uint64_t before = 0;
    sys_call(SYS_rt_sigprocmask, SIG_SETMASK, (long)&mask, (long)&before, sizeof(mask), 0, 0);
    return before;
}

/* For lock_acquire_slow(): only locks later in the order than all that this thread holds. */
bool fork_may_wait(const struct lock *lock)
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
 */
void cache_fork_prepare(void)
{
    if (atomic_load_explicit(forker(), memory_order_relaxed) == lock_self()) {
        depth++;
        return;
    }
    uint64_t mask = set_signals(~0ull);
    for (unsigned i = 0; i < read_once(cache_top); i++)
        if (i <= LOCK_REGION || i >= CACHE_FIRST)
            lock_acquire_by(lock_of(i), lock_self() | LOCK_BY_FORK);
    *forker_mask() = mask;
    atomic_store_explicit(forker(), lock_self(), memory_order_relaxed);
}

static bool taken_by_fork(unsigned number)
{
    uint64_t word = atomic_load_explicit(&lock_of(number)->word, memory_order_relaxed);
    return (word & ~LOCK_SLEEPERS) == (lock_self() | LOCK_BY_FORK);
}

void cache_fork_parent(void)
{
    if (depth) {
        depth--;
        return;
    }
    uint64_t mask = *forker_mask();
    atomic_store_explicit(forker(), 0, memory_order_relaxed);
    for (unsigned i = read_once(cache_top); i-- > 0;)
        if (taken_by_fork(i))
            lock_release(lock_of(i));
    set_signals(mask);
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
    if (taken_by_fork(number) || !lock_held_by_self(lock_of(number)))
        lock_reset(lock_of(number));
}

void cache_fork_child(void)
{
    if (depth) { /* the fork below still holds them, here too */
        depth--;
        return;
    }
    uint64_t mask = *forker_mask();
    atomic_store_explicit(forker(), 0, memory_order_relaxed);
    for (unsigned i = CACHE_FIRST; i < cache_top; i++)
        forget(i);
    forget(LOCK_REGION);
    if (taken_by_fork(LOCK_TAKEOVER) || !lock_held_by_self(lock_of(LOCK_TAKEOVER)))
        free_held_slots();
    forget(LOCK_TAKEOVER);
    if (unlikely(hooks.rcu_kick))
        rcu_fork_child(); /* knows no lock */
    forget(LOCK_SETUP);
    if (helper_may())
        helper_forget();
    set_signals(mask);
}
