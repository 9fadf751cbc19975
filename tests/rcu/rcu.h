/* Shared by the tests of deferred frees, which include internal headers. */
#ifndef SHEAF_TESTS_RCU_H
#define SHEAF_TESTS_RCU_H

#include <urcu-bp.h> /* before Sheaf's headers, which define macros for compiler attributes */

#include "cases.h"
#include "cache/deferred/rcu.h"
#include "memory/space/mapped.h"
#include "sheaf/malloc.h"
#include "sheaf/rcu.h"
#include "process/census.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { POISON = 0x5a };

static inline struct kmem_cache *make_cache(unsigned size, unsigned capacity, slab_flags_t flags)
{
    struct kmem_cache_args args = {.sheaf_capacity = capacity};
    struct kmem_cache *cache = kmem_cache_create("deferred", size, &args, flags);
    must(cache);
    return cache;
}

/* Allocates an object and overwrites it, so that a reader that still uses the memory notices its reuse. */
static inline void *take_poisoned(struct kmem_cache *cache)
{
    void *object = kmem_cache_alloc(cache, GFP_KERNEL);
    must(object);
    return memset(object, POISON, kmem_cache_size(cache));
}

/* From here on no sheaf of any size can be allocated. */
static inline void use_up_sheaves(void)
{
    space.sheaves.most = 0;
    for (unsigned order = SHEAF_ORDER_MIN; order <= SHEAF_ORDER_MAX; order++)
        while (empty_sheaf_alloc(sheaf_capacity_of(order))) {
        }
}

static inline struct sheaf_rcu_stats stats_now(void)
{
    struct sheaf_rcu_stats stats;
    sheaf_rcu_stats(&stats);
    return stats;
}

/* A thread that is in a read-side section from the return of start_reader() until end_reader(). */
struct reader {
    pthread_t thread;
    _Atomic int state; /* 1: in the section, 2: shall leave it */
};

static void *reader_thread(void *of)
{
    struct reader *reader = of;
    rcu_read_lock();
    atomic_store(&reader->state, 1);
    while (atomic_load(&reader->state) != 2)
        usleep(200);
    rcu_read_unlock();
    return NULL;
}

static inline void start_reader(struct reader *reader)
{
    atomic_store(&reader->state, 0);
    must(!pthread_create(&reader->thread, NULL, reader_thread, reader));
    while (!atomic_load(&reader->state))
        sched_yield();
}

static inline void end_reader(struct reader *reader)
{
    atomic_store(&reader->state, 2);
    must(!pthread_join(reader->thread, NULL));
}

/* A thread that calls the barrier of one cache or, if `cache` is NULL, of all. */
struct barrier {
    pthread_t thread;
    struct kmem_cache *cache;
    _Atomic bool done;
};

static void *barrier_thread(void *of)
{
    struct barrier *barrier = of;
    if (barrier->cache)
        kvfree_rcu_barrier_on_cache(barrier->cache);
    else
        kvfree_rcu_barrier();
    atomic_store(&barrier->done, true);
    return NULL;
}

static inline void start_barrier(struct barrier *barrier, struct kmem_cache *cache)
{
    barrier->cache = cache;
    atomic_store(&barrier->done, false);
    must(!pthread_create(&barrier->thread, NULL, barrier_thread, barrier));
}

/* After a barrier no object of the cache waits or is in use. Destroys the cache. */
static inline void check_empty(struct kmem_cache *cache)
{
    struct cache_census census;
    kvfree_rcu_barrier_on_cache(cache);
    cache_check(cache);
    cache_census(cache, &census);
    must(census.in_rcu == 0 && census.in_use == 0);
    must(kmem_cache_destroy(cache) == 0);
}

#endif
