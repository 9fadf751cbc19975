#define _GNU_SOURCE
#include <urcu/urcu-bp.h>

#include "rcu/rcu.h"
#include "rcu/futex.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

#define YIELDS 20

const struct rcu_flavor_struct *flavor = &urcu_bp_flavor;

/*
 * A round takes everything that is sealed, waits for one grace period and frees it. What is sealed meanwhile waits
 * for the next round, so the number of grace periods depends on their duration, not on the number of frees.
 */
static pthread_mutex_t running = PTHREAD_MUTEX_INITIALIZER;
static _Atomic uint32_t ended; /* the number of rounds that ended; a futex */

static bool run_locked(void)
{
    bool any = single_collect();
    for (unsigned i = 0; i < allocator_count; i++)
        any |= allocators[i]->collect();
    if (!any)
        return false;
    flavor->update_synchronize_rcu();
    for (unsigned i = 0; i < allocator_count; i++)
        allocators[i]->finish();
    single_finish();
    atomic_fetch_add(&ended, 1);
    futex_wake(&ended);
    return true;
}

bool round_run(void)
{
    pthread_mutex_lock(&running);
    bool any = run_locked();
    pthread_mutex_unlock(&running);
    return any;
}

/* Cancellation is disabled, because a thread that is cancelled during the grace period would not unlock. */
void round_try(void)
{
    int state;
    if (pthread_mutex_trylock(&running))
        return;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    run_locked();
    pthread_mutex_unlock(&running);
    pthread_setcancelstate(state, NULL);
}

bool round_seal(void)
{
    unsigned left = 0;
    pthread_mutex_lock(&running);
    for (unsigned i = 0; i < allocator_count; i++)
        left |= allocators[i]->seal(NULL, allocators[i]->age());
    pthread_mutex_unlock(&running);
    return left;
}

/*
 * A thread that holds a sheaf puts one object into it, which is soon done unless the thread is preempted, perhaps
 * by this one, which may have the higher priority.
 */
static void seal_all(const struct sheaf_rcu_allocator *allocator, const struct kmem_cache *cache)
{
    const struct timespec pause = {.tv_nsec = 100000};
    for (int i = 0; allocator->seal(cache, 0) & SHEAF_RCU_HELD; i++) {
        if (i < YIELDS)
            sched_yield();
        else
            nanosleep(&pause, NULL);
    }
}

/* Whatever was sealed before is part of a round that has ended once the mutex is taken, or of the one run here. */
void round_barrier(const struct sheaf_rcu_allocator *allocator, const struct kmem_cache *cache)
{
    int state;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    pthread_mutex_lock(&running);
    for (unsigned i = 0; i < allocator_count; i++)
        if (!allocator || allocator == allocators[i])
            seal_all(allocators[i], cache);
    if (!allocator || !cache || allocator->waits(cache) || single_count())
        run_locked();
    pthread_mutex_unlock(&running);
    pthread_setcancelstate(state, NULL);
}

void round_await(unsigned ms)
{
    futex_wait(&ended, atomic_load(&ended), (int)ms);
}

/*
 * The thread that held the mutex does not exist in the child. What it waited for is still in the allocators and waits
 * anew.
 */
void round_fork_child(void)
{
    pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
    running = fresh;
}
