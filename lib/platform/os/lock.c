#include "platform/os/lock.h"
#include "platform/arch/arch.h"
#include "platform/os/hooks.h"
#include "platform/os/stack.h"
#include "platform/os/syscall.h"

#include <linux/futex.h>

/* The futex is the low half of the word, which differs from owner to owner and is 0 only while the lock is free. */
static uint32_t *futex_of(struct lock *lock)
{
    return (uint32_t *)(void *)&lock->word;
}

#ifdef SHEAF_CHECKING
void lock_check_order(const struct lock *lock, uint64_t by)
{
    if (by & LOCK_BY_FORK || !hooks.may_wait || lock_held_by_self(lock) || hooks.may_wait(lock))
        return;
    bool follows_all_locks_held = stack_in_handler();
    sheaf_assert(follows_all_locks_held);
}
#endif

/* Spins for about as long as a refill holds the lock. */
static bool spin(struct lock *lock, uint64_t by)
{
    for (int i = 0; i < 100; i++) {
        uint64_t expected = 0;
        if (atomic_compare_exchange_weak_explicit(&lock->word, &expected, by, memory_order_acquire,
                                                  memory_order_relaxed))
            return true;
        ARCH_RELAX();
    }
    return false;
}

/* A thread that slept sets LOCK_SLEEPERS when it takes the lock, because other threads may still sleep. */
static void sleep_for(struct lock *lock, uint64_t by)
{
    for (;;) {
        uint64_t word = atomic_load_explicit(&lock->word, memory_order_relaxed);
        if (word == 0) {
            if (atomic_compare_exchange_weak_explicit(&lock->word, &word, by | LOCK_SLEEPERS, memory_order_acquire,
                                                      memory_order_relaxed))
                return;
            continue;
        }
        if (!(word & LOCK_SLEEPERS) &&
            !atomic_compare_exchange_weak_explicit(&lock->word, &word, word | LOCK_SLEEPERS, memory_order_relaxed,
                                                   memory_order_relaxed))
            continue;
        sys_call(SYS_futex, (long)futex_of(lock), FUTEX_WAIT_PRIVATE, (long)(uint32_t)(word | LOCK_SLEEPERS), 0, 0,
                 0);
    }
}

__attribute__((noinline)) bool lock_acquire_slow(struct lock *lock, uint64_t by)
{
    if (lock_held_by_self(lock))
        return false;
    if (!spin(lock, by)) {
        if (hooks.may_wait && !hooks.may_wait(lock))
            return false;
        sleep_for(lock, by);
    }
    lock->waits++;
    return true;
}

/*
 * Wakes all sleepers. A single one might enter a signal handler when it is woken, and wait there for another lock,
 * whose holder (a fork) sleeps on this one.
 */
__attribute__((noinline)) void lock_wake(struct lock *lock)
{
    sys_call3(SYS_futex, (long)futex_of(lock), FUTEX_WAKE_PRIVATE, INT32_MAX);
}
