/*
 * A mutex that knows its owner.
 *
 * A signal handler that interrupted the holder must not wait for it. So the word names the owner by its thread
 * pointer (which also survives fork, as a thread number does not), and lock_acquire() says so instead of waiting.
 * A thread of ours never holds two of these locks at once, but for fork (see process/fork.c for the order).
 */
#ifndef SHEAF_OS_LOCK_H
#define SHEAF_OS_LOCK_H

#include "os/compiler.h"

struct lock {
    _Atomic uint64_t word; /* 0: free. Else the owner's thread pointer and the bits below */
    uint64_t waits;        /* times that a thread had to wait; written by the holder */
};

#define LOCK_SLEEPERS 1ull /* somebody sleeps on the low half */
#define LOCK_BY_FORK  2ull /* taken for a fork */
#define LOCK_BITS     (LOCK_SLEEPERS | LOCK_BY_FORK)

static inline uint64_t lock_self(void)
{
    return (uint64_t)(uintptr_t)__builtin_thread_pointer();
}

static inline bool lock_held_by_self(struct lock *lock)
{
    return (atomic_load_explicit(&lock->word, memory_order_relaxed) & ~LOCK_BITS) == lock_self();
}

/* Take the lock if it is free. */
static inline bool lock_try(struct lock *lock)
{
    uint64_t expected = 0;
    return atomic_compare_exchange_strong_explicit(&lock->word, &expected, lock_self(), memory_order_acquire,
                                                   memory_order_relaxed);
}

bool lock_acquire_slow(struct lock *lock, uint64_t by);
void lock_wake(struct lock *lock);

/* `by` is what the word then says: lock_self(), and LOCK_BY_FORK where it is for a fork. */
static inline bool lock_acquire_by(struct lock *lock, uint64_t by)
{
    uint64_t expected = 0;
    if (likely(atomic_compare_exchange_strong_explicit(&lock->word, &expected, by, memory_order_acquire,
                                                       memory_order_relaxed)))
        return true;
    return lock_acquire_slow(lock, by);
}

/*
 * Take the lock. False: it would have to be waited for, and this thread holds it or a later one already, below the
 * signal handler that asks.
 */
static inline bool lock_acquire(struct lock *lock)
{
    return lock_acquire_by(lock, lock_self());
}

/* If a signal handler comes between the exchange and the wake-up, it finds the lock free: it is. */
static inline void lock_release(struct lock *lock)
{
    if (unlikely(atomic_exchange_explicit(&lock->word, 0, memory_order_release) & LOCK_SLEEPERS))
        lock_wake(lock);
}

/* In the child of a fork: forget an owner that does not exist here. */
static inline void lock_reset(struct lock *lock)
{
    atomic_store_explicit(&lock->word, 0, memory_order_relaxed);
}

#endif
