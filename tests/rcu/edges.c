/* Edge cases of deferred frees: no deferred free before, no thread, cancellation, no memory, forks. */
#define _GNU_SOURCE
#include "rcu.h"

#include "cache/remote.h"
#include "process/decay.h"

#include <dlfcn.h>

/* The static TLS block lies on the stack of the library's thread, which must be large enough for it. */
static __thread volatile char thread_local_data[1 << 20];

/* The library's thread starts although the program's thread-local data would fill a small stack. */
CASE(much_thread_local_data)
{
    struct kmem_cache *cache = make_cache(64, 13, 0);
    thread_local_data[sizeof(thread_local_data) - 1] = 1;
    kmem_cache_free_rcu(cache, kmem_cache_alloc(cache, 0));
    while (rcu_objects(cache))
        usleep(1000);
    check_empty(cache);
}

/* Slabs of such a cache are returned although the program calls no other function of libsheaf-rcu. */
CASE(typesafe_alone)
{
    struct kmem_cache *cache = make_cache(4096, 5, SLAB_TYPESAFE_BY_RCU);
    void *objects[200];
    for (int i = 0; i < 200; i++)
        must(objects[i] = kmem_cache_alloc(cache, 0));
    for (int i = 0; i < 200; i++)
        kmem_cache_free(cache, objects[i]);
    kmem_cache_shrink(cache);
    while (stats_now().slabs)
        usleep(1000);
    must(stats_now().grace_periods > 0);
    must(kmem_cache_destroy(cache) == 0);
}

/* A thread that is cancelled in a barrier leaves no lock held. */
CASE(cancelled_barrier)
{
    struct kmem_cache *cache = make_cache(64, 13, 0);
    struct reader reader;
    struct barrier barrier;
    start_reader(&reader);
    kmem_cache_free_rcu(cache, kmem_cache_alloc(cache, 0));
    start_barrier(&barrier, NULL);
    usleep(50000);
    must(!pthread_cancel(barrier.thread));
    usleep(50000);
    end_reader(&reader);
    must(!pthread_join(barrier.thread, NULL));
    check_empty(cache);
}

static _Atomic unsigned refusing, calls;

/* This definition precedes libc's, so the library calls it, too. */
sheaf_export int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *with)
{
    union {
        void *symbol;
        int (*call)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    } real = {.symbol = dlsym(RTLD_NEXT, "pthread_create")};
    atomic_fetch_add(&calls, 1);
    return atomic_load(&refusing) ? EAGAIN : real.call(thread, attributes, run, with);
}

/* If pthread_create() fails, not every free calls it, waiting memory stays bounded, and later calls succeed. */
CASE(no_thread)
{
    enum { LIMIT = 64 << 10 };
    struct kmem_cache *cache = make_cache(64, 13, 0);
    sheaf_rcu_tune(LIMIT, 0);
    atomic_store(&refusing, 1);
    for (int i = 0; i < 20000; i++) {
        kmem_cache_free_rcu(cache, kmem_cache_alloc(cache, 0));
        must(stats_now().bytes < 2 * LIMIT);
    }
    must(atomic_load(&calls) && atomic_load(&calls) < 200);
    atomic_store(&refusing, 0);
    for (int i = 0; i < 20000; i++)
        kmem_cache_free_rcu(cache, kmem_cache_alloc(cache, 0));
    while (rcu_objects(cache))
        usleep(1000);
    check_empty(cache);
}

struct item {
    char data[40];
    struct rcu_head rcu;
};

CASE(pointer_is_evaluated_once)
{
    struct item *items[2], **next = items;
    for (int i = 0; i < 2; i++)
        must(items[i] = sheaf_malloc(sizeof(struct item)));
    kfree_rcu(*next++, rcu);
    kfree_rcu(*next++);
    must(next == items + 2);
    kvfree_rcu_barrier();
}

static _Atomic int step;

static void *leave_later(void *reader)
{
    while (atomic_load(&step) != 1)
        usleep(1000);
    usleep(100000); /* enough for the destruction to begin to wait */
    end_reader(reader);
    return NULL;
}

/* Destroying a cache also waits for objects that wait by their rcu_head. */
CASE(destroy_waits_for_single_ones)
{
    struct kmem_cache *cache = make_cache(sizeof(struct item), 13, 0);
    struct item *item = kmem_cache_alloc(cache, 0);
    struct reader reader;
    pthread_t thread;
    start_reader(&reader);
    must(!pthread_create(&thread, NULL, leave_later, &reader));
    cache_trim_all();
    use_up_sheaves();
    kfree_rcu(item, rcu);
    must(stats_now().single == 1);
    atomic_store(&step, 1);
    must(kmem_cache_destroy(cache) == 0);
    pthread_join(thread, NULL);
}

/* ---- forks ---- */

static struct kmem_cache *shared;

static void *allocating_reader(void *unused)
{
    rcu_read_lock();
    atomic_store(&step, 1);
    while (atomic_load(&step) == 1)
        usleep(1000);
    usleep(100000); /* enough for fork() to take all locks that it can get */
    for (int i = 0; i < 5000; i++)
        must(kmem_cache_alloc(shared, 0));
    rcu_read_unlock();
    return unused;
}

/*
 * In fork(), the handlers of libsheaf-rcu run before the allocator's. They may wait for a grace period, and
 * readers may need the allocator's locks meanwhile.
 */
CASE(handlers_run_before_the_allocators)
{
    pthread_t thread;
    must(sheaf_rcu_handle_fork() == 0);
    must(sheaf_rcu_handle_fork() == 0); /* a second call, as by another library, has no effect */
    shared = make_cache(64, 13, 0);
    must(!pthread_create(&thread, NULL, allocating_reader, NULL));
    while (!atomic_load(&step))
        usleep(1000);
    kmem_cache_free_rcu(shared, kmem_cache_alloc(shared, 0));
    while (!stats_now().sheaves)
        usleep(1000);
    usleep(10000); /* enough for the library's thread to begin to wait for the reader */
    atomic_store(&step, 2);
    pid_t pid = fork();
    if (!pid)
        _exit(0);
    must_succeed(pid);
    pthread_join(thread, NULL);
}

/* fork() in a signal handler during a decay step. The child must not wait for its parent's other threads. */
CASE(fork_during_a_decay_step)
{
    shared = make_cache(64, 13, 0);
    kmem_cache_free_rcu(shared, kmem_cache_alloc(shared, 0));
    kvfree_rcu_barrier();
    atomic_fetch_add((_Atomic uint32_t *)&slot_rcu(1)[shared->number], 1); /* as if another thread held it */
    slot_raise_top(1);
    kmem_cache_free_rcu(shared, kmem_cache_alloc(shared, 0));
    must(lock_acquire(lock_of(LOCK_DRAIN)));
    pid_t pid = fork();
    lock_release(lock_of(LOCK_DRAIN));
    if (!pid) {
        alarm(CASE_SECONDS / 2);
        for (unsigned slot = 0; slot < slot_top; slot++)
            must((slot_rcu(slot)[shared->number] & 63) == 0);
        kvfree_rcu_barrier();
        must(rcu_objects(shared) == 0);
        _exit(0);
    }
    must_succeed(pid);
}
