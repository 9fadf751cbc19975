/*
 * fork() in a signal handler that interrupted the holder of a lock: in the parent and in the child this lock stays
 * held, and every other lock is free.
 */
#define _GNU_SOURCE
#include "../cases.h"
#include "cache/kmem_cache.h"
#include "memory/space/locks.h"
#include "sheaf/malloc.h"
#include "process/fork.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

static _Atomic bool holds;

static bool is_free(unsigned number)
{
    return atomic_load(&lock_of(number)->word) == 0;
}

static void only_held(unsigned held)
{
    for (unsigned i = 0; i < cache_top; i++) {
        if (i == held)
            must(lock_held_by_self(lock_of(i)));
        else
            must(is_free(i));
    }
}

/* Calls the fork handlers in this process, without a fork. `after` is the parent's handler or the child's. */
static void fork_over(unsigned held, void (*after)(void))
{
    must(lock_acquire(lock_of(held)));
    cache_fork_prepare();
    for (unsigned i = CACHE_FIRST; i < cache_top; i++)
        must(lock_held_by_self(lock_of(i)));
    cache_fork_prepare(); /* as for _Fork in a signal handler that interrupted fork() */
    after();
    must(lock_held_by_self(lock_of(cache_top - 1)));
    after();
    only_held(held);
    lock_release(lock_of(held));
    only_held(CACHE_MAX);
}

static void over_each(void (*after)(void))
{
    void *some = sheaf_malloc(100);
    must(some);
    must(cache_top > CACHE_FIRST + 3);
    for (int round = 0; round < 2; round++) { /* locks that are skipped once are taken the next time */
        fork_over(LOCK_SETUP, after);
        fork_over(LOCK_DRAIN, after);
        fork_over(LOCK_REGION, after);
        fork_over(CACHE_FIRST, after);
        fork_over(cache_top - 1, after);
        cache_fork_prepare();
        after();
        only_held(CACHE_MAX);
    }
    sheaf_free(some);
}

CASE(the_parent_keeps_its_lock)
{
    over_each(cache_fork_parent);
}

CASE(the_child_keeps_its_lock)
{
    over_each(cache_fork_child);
}

static volatile sig_atomic_t came;

static void come(int signal)
{
    (void)signal;
    came = 1;
}

/* While fork() holds the locks, this thread's signals wait: a handler that forks would find some locks held. */
static void comes_after(void (*after)(void))
{
    signal(SIGUSR1, come);
    came = 0;
    cache_fork_prepare();
    raise(SIGUSR1);
    must(!came);
    after();
    must(came);
}

CASE(no_signal_handler_while_locks_are_taken)
{
    comes_after(cache_fork_parent);
    comes_after(cache_fork_child);
}

/* Another thread forks in a handler that interrupted the holder of a lock for which this thread's fork waits. */
static void *fork_over_first(void *unused)
{
    must(lock_acquire(lock_of(CACHE_FIRST)));
    atomic_store(&holds, true);
    while (!atomic_load(&lock_of(LOCK_REGION)->word)) /* the other fork holds the locks before CACHE_FIRST */
        sched_yield();
    cache_fork_prepare();
    cache_fork_parent();
    lock_release(lock_of(CACHE_FIRST));
    return unused;
}

CASE(two_forks_at_once)
{
    pthread_t other;
    sheaf_free(sheaf_malloc(100));
    must(cache_top > CACHE_FIRST + 3);
    must(!pthread_create(&other, NULL, fork_over_first, NULL));
    while (!atomic_load(&holds))
        sched_yield();
    cache_fork_prepare();
    for (unsigned i = CACHE_FIRST; i < cache_top; i++)
        must(lock_held_by_self(lock_of(i)));
    cache_fork_parent();
    must(!pthread_join(other, NULL));
    only_held(CACHE_MAX);
}
