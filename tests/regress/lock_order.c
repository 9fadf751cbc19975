/* The checking build's assertion of the lock order: it ends a thread that breaks the order, and no other. */
#define _GNU_SOURCE
#include "../cases.h"
#include "sheaf/malloc.h"
#include "cache/slot/slot.h"
#include "memory/space/locks.h"

#include <signal.h>
#include <sys/resource.h>

static void start(void)
{
    sheaf_free(sheaf_malloc(100));
}

static void take_two(unsigned first, unsigned second)
{
    must(lock_acquire(lock_of(first)));
    must(lock_acquire(lock_of(second)));
    lock_release(lock_of(second));
    lock_release(lock_of(first));
}

CASE(in_the_order)
{
    start();
    take_two(LOCK_SETUP, LOCK_DRAIN);
    take_two(LOCK_DRAIN, LOCK_REGION);
    take_two(LOCK_REGION, CACHE_FIRST);
    take_two(CACHE_FIRST, CACHE_FIRST + 1);
}

static void must_abort(unsigned first, unsigned second)
{
    int status = 0;
    pid_t pid = fork();
    if (!pid) {
        must(!setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}));
        take_two(first, second);
        _exit(0);
    }
    must(waitpid(pid, &status, 0) == pid);
    must(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

CASE(against_the_order)
{
    start();
    must_abort(LOCK_DRAIN, LOCK_SETUP);
    must_abort(LOCK_REGION, LOCK_DRAIN);
    must_abort(CACHE_FIRST, LOCK_REGION);
    must_abort(CACHE_FIRST + 1, CACHE_FIRST);
}

/* A try never waits. */
CASE(by_a_try)
{
    start();
    must(lock_acquire(lock_of(CACHE_FIRST)));
    must(lock_try(lock_of(LOCK_DRAIN)));
    lock_release(lock_of(LOCK_DRAIN));
    lock_release(lock_of(CACHE_FIRST));
}

static volatile sig_atomic_t taken;

static void take_earlier(int signal)
{
    (void)signal;
    taken = lock_acquire(lock_of(LOCK_REGION));
    if (taken)
        lock_release(lock_of(LOCK_REGION));
}

CASE(in_a_handler)
{
    start();
    signal(SIGUSR1, take_earlier);
    must(lock_acquire(lock_of(CACHE_FIRST)));
    raise(SIGUSR1);
    must(taken);
    lock_release(lock_of(CACHE_FIRST));
}
