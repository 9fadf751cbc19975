/*
 * A mutex that knows its owner.
 *
 * A signal handler must not wait for a lock that the interrupted code holds. So the word names the owner by its
 * thread pointer, which unlike a thread number survives fork (foreign threads have other names), and lock_acquire()
 * returns false instead of waiting. memory/space/locks.h has all locks, and the order in which a thread that holds
 * one may take others.
 */
#ifndef SHEAF_OS_LOCK_H
#define SHEAF_OS_LOCK_H

#include "platform/os/foreign.h"

struct lock {
    _Atomic uint64_t word; /* 0 while the lock is free, else lock_self() of the owner and the bits below */
    uint64_t waits;        /* times that a thread had to wait; written by the holder */
};

#define LOCK_SLEEPERS 1ull /* threads sleep on the low half */
#define LOCK_BY_FORK  2ull /* taken for a fork */
#define LOCK_BITS     (LOCK_SLEEPERS | LOCK_BY_FORK)

/* The name of the calling thread: its thread pointer, which a foreign thread may share with its parent. */
static inline uint64_t lock_self(void)
{
    uint64_t foreign = foreign_name();
    return unlikely(foreign) ? foreign : (uint64_t)(uintptr_t)__builtin_thread_pointer();
}

static inline bool lock_held_by_self(const struct lock *lock)
{
    return (atomic_load_explicit(&lock->word, memory_order_relaxed) & ~LOCK_BITS) == lock_self();
}

/*
 * Checking builds assert the order (hooks.may_wait, platform/os/hooks.h) at each acquisition, not only where a thread
 * waits. A signal handler may take a free lock whatever the interrupted code holds, and so may a fork, which has to
 * take all of them.
 */
#ifdef SHEAF_CHECKING
void lock_check_order(const struct lock *lock, uint64_t by);
#else
static inline void lock_check_order(const struct lock *lock, uint64_t by)
{
    (void)lock, (void)by;
}
#endif

/* Take the lock if it is free. Never waits, so the order does not matter. */
static inline bool lock_try(struct lock *lock)
{
    uint64_t expected = 0;
    return atomic_compare_exchange_strong_explicit(&lock->word, &expected, lock_self(), memory_order_acquire,
                                                   memory_order_relaxed);
}

bool lock_acquire_slow(struct lock *lock, uint64_t by);
void lock_wake(struct lock *lock);

/* As lock_acquire(). `by` is the word of the held lock: lock_self(), with LOCK_BY_FORK if a fork takes the lock. */
static inline bool lock_acquire_by(struct lock *lock, uint64_t by)
{
    lock_check_order(lock, by);
    uint64_t expected = 0;
    if (likely(atomic_compare_exchange_strong_explicit(&lock->word, &expected, by, memory_order_acquire,
                                                       memory_order_relaxed)))
        return true;
    return lock_acquire_slow(lock, by);
}

/*
 * Take the lock, and wait for it if necessary. Returns false instead of deadlocking: the calling signal handler has
 * interrupted a holder of this lock, or a holder of one that follows it in the order while another thread holds this
 * one.
 */
static inline bool lock_acquire(struct lock *lock)
{
    return lock_acquire_by(lock, lock_self());
}

/* A signal handler that runs between the exchange and the wake-up finds the lock free, and may take it. */
static inline void lock_release(struct lock *lock)
{
    if (unlikely(atomic_exchange_explicit(&lock->word, 0, memory_order_release) & LOCK_SLEEPERS))
        lock_wake(lock);
}

/* In the child of a fork: release a lock whose owner does not exist here. */
static inline void lock_reset(struct lock *lock)
{
    atomic_store_explicit(&lock->word, 0, memory_order_relaxed);
}

#endif
