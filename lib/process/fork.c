#include "process/fork.h"
#include "cache/kmem_cache.h"
#include "process/helper.h"
#include "cache/deferred/rcu.h"
#include "cache/remote.h"
#include "platform/os/random.h"
#include "platform/os/syscall.h"

#include <signal.h>

/*
 * Fork at any moment. All locks are taken before it, in the lock order (memory/space/locks.h), so that no other
 * thread holds one. Afterwards the parent releases them and the child resets them. A lock that the forking thread
 * already holds, because it forks in a signal handler that interrupted the holder, is left alone: the holder
 * continues in both processes.
 *
 * Several threads may fork at once. While one waits for a lock, the holder of that lock may be interrupted by a
 * handler that forks and skips the locks that the first fork has taken. So a lock taken by a fork is marked in its
 * word (LOCK_BY_FORK), and the other data of a fork is written while it holds the last lock in the order, which
 * only one fork can.
 *
 * Signals are blocked from before the first lock is taken until the last is released. Otherwise a handler that
 * forks would find half of the locks taken by its own thread; it could neither take all of them nor know which to
 * release.
 *
 * Sheaves that other threads had detached are lost to the child. Slots, barns and the pool of sheaves only change
 * by single words. A remote drain holds its lock, so ends are claimed only if the fork could not take that lock. The
 * child stores 0 in such words, and their sheaves are lost.
 */

/* The number of nested forks of the forking thread. A fork handler of the program that forks finds all locks held
 * by its own thread, and leaves them to the outer fork. */
static unsigned depth;

static _Atomic uint64_t *forker(void)
{
    return &lock_of(LOCK_FORKER)->word;
}

/* The forking thread's signal mask before the fork. It lies beside the locks, so that the fork writes to no
 * further page. */
static uint64_t *forker_mask(void)
{
    return &lock_of(LOCK_FORKER)->waits;
}

/* Set the thread's signal mask. Returns the previous one. */
static uint64_t set_signals(uint64_t mask)
{
    uint64_t before = 0;
    sys_call(SYS_rt_sigprocmask, SIG_SETMASK, (long)&mask, (long)&before, sizeof(mask), 0, 0);
    return before;
}

bool fork_may_wait(const struct lock *lock)
{
    unsigned number = lock_number(lock);
    for (unsigned i = number; i < read_once(cache_top); i++)
        if (i != LOCK_FORKER && lock_held_by_self(lock_of(i)))
            return false;
    return true;
}

/* In a signal handler that interrupted a holder, lock_acquire_by() may refuse a lock. It is then left alone, and
 * what another thread is changing under it may be half changed in the child, as after any fork in a handler. */
void cache_fork_prepare(void)
{
    if (atomic_load_explicit(forker(), memory_order_relaxed) == lock_self()) {
        depth++;
        return;
    }
    uint64_t mask = set_signals(~0ull);
    for (unsigned i = 0; i < read_once(cache_top); i++)
        if (i <= LOCK_REGION || i == LOCK_PROFILE || i >= CACHE_FIRST)
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
        if (atomic_load_explicit(&slot_head(slot)->lock, memory_order_relaxed)) /* a write would copy the page */
            atomic_store(&slot_head(slot)->lock, 0);
        for (unsigned i = CACHE_FIRST; i < cache_top; i++)
            if (cache_in_use(cache_at(i)) && top_claimed(slot_words(slot, word_id(i))->top))
                slot_words(slot, word_id(i))->top = 0;
    }
}

/* Resets a lock, unless the code that this signal handler interrupted holds it. Other holders do not exist in the
 * child. */
static void forget(unsigned number)
{
    if (taken_by_fork(number) || !lock_held_by_self(lock_of(number)))
        lock_reset(lock_of(number));
}

void cache_fork_unprepared(uint64_t parent)
{
    depth = 0;
    *forker_mask() = set_signals(~0ull);
    atomic_store_explicit(forker(), parent, memory_order_relaxed);
}

void cache_fork_child(void)
{
    if (depth) { /* the outer fork holds the locks in the child, too */
        depth--;
        return;
    }
    uint64_t mask = *forker_mask();
    bool foreign = is_foreign_name(atomic_load_explicit(forker(), memory_order_relaxed));
    atomic_store_explicit(forker(), 0, memory_order_relaxed);
    for (unsigned i = CACHE_FIRST; i < cache_top; i++)
        forget(i);
    forget(LOCK_PROFILE);
    forget(LOCK_REGION);
    if (taken_by_fork(LOCK_DRAIN) || !lock_held_by_self(lock_of(LOCK_DRAIN)))
        free_held_slots();
    forget(LOCK_DRAIN);
    if (unlikely(hooks.rcu_kick))
        rcu_fork_child(); /* takes no lock */
    forget(LOCK_SETUP);
    helper_forget();
    random_forked();
    if (unlikely(atomic_load_explicit(&foreign_threads, memory_order_relaxed))) {
        foreign_fork_child(foreign);
        slot_resume_fast();
    }
    if (unlikely(space.lean)) { /* locks of memory are not inherited */
        atomic_store(&space.locked, false);
        atomic_store(&space.opening, false);
    }
    set_signals(mask);
}
