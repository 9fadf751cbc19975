#define _GNU_SOURCE
#include "rcu/rcu.h"
#include "rcu/futex.h"
#include "platform/os/thread.h"

#include <errno.h>

/*
 * The thread that waits for grace periods. It sleeps without a timeout while no objects are collected anywhere,
 * and until the oldest sheaf may be due otherwise.
 *
 * The child of a fork has no such thread. What it waited for stays where it is, and the child's next free or
 * barrier starts a new one.
 */
static _Atomic bool started;
static _Atomic uint32_t work; /* changes when there is work; a futex */
static _Atomic bool asleep;

/*
 * Where no thread can be created (a limit of the system), an attempt costs about a thousand times as much as a
 * free.
 */
#define TRY_AGAIN 1000
static _Atomic int32_t not_now; /* calls until the next attempt */

/*
 * Safe in signal handlers. A kick before the worker waits is not lost: the word has changed, so the wait ends at
 * once.
 */
void worker_kick(void)
{
    atomic_fetch_add(&work, 1);
    if (atomic_load(&asleep))
        futex_wake(&work);
}

static int shortest_age(void)
{
    uint32_t age = INT_MAX;
    for (unsigned i = 0; i < allocator_count; i++)
        age = allocators[i]->age() < age ? allocators[i]->age() : age;
    return (int)age;
}

static void *worker(void *unused)
{
    (void)unused;
    for (;;) {
        uint32_t seen = atomic_load(&work);
        bool left = round_seal();
        if (round_run())
            continue;
        atomic_store(&asleep, true);
        futex_wait(&work, seen, left ? shortest_age() : -1);
        atomic_store(&asleep, false);
    }
    return NULL;
}

static void fork_child(void)
{
    atomic_store(&started, false);
    atomic_store(&not_now, 0);
    atomic_store(&asleep, false);
    round_fork_child();
}

/*
 * Registered when the library is loaded, because a fork that is under way does not call handlers registered
 * meanwhile.
 */
__attribute__((constructor)) static void register_fork(void)
{
    pthread_atfork(NULL, NULL, fork_child);
}

/* The flag is set first, because pthread_create() allocates and the program's malloc may call this function. */
bool worker_start(void)
{
    bool no = false;
    if (likely(atomic_load_explicit(&started, memory_order_relaxed)))
        return true;
    if (atomic_load(&not_now) > 0 && atomic_fetch_sub(&not_now, 1) > 1)
        return false;
    if (!atomic_compare_exchange_strong(&started, &no, true))
        return true;
    int saved = errno;
    bool done = thread_start(pthread_create, worker, 128 << 10);
    if (!done) {
        atomic_store(&not_now, TRY_AGAIN);
        atomic_store(&started, false);
    }
    errno = saved;
    return done;
}
