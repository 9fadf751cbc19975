#define _GNU_SOURCE
#include <urcu/urcu-bp.h>

#include "rcu/rcu.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <stdlib.h>
#include <unistd.h>

/* The limit for objects of other allocators, whose sizes are unknown. */
#define FOREIGN_MOST 65536
static _Atomic uint64_t foreign_waits;

static _Atomic bool used; /* an object was freed through this library, so the flavour can no longer change */

static void complain(const char *line)
{
    if (write(STDERR_FILENO, line, strlen(line)) < 0)
        return;
}

static void synchronize(void)
{
    int state;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state); /* or cancellation could leave liburcu's lock taken */
    flavor->update_synchronize_rcu();
    pthread_setcancelstate(state, NULL);
}

/*
 * Called when more waits than the limit: waits until a round ends, but at most SHEAF_RCU_PATIENCE_MS. It must not
 * wait in a read-side section, for which that round may be waiting. The time is limited because readers may need
 * locks that this thread holds.
 */
static void help(const struct sheaf_rcu_allocator *allocator, bool thread)
{
    if (flavor->read_ongoing())
        return;
    if (allocator)
        allocator->note(false);
    else
        atomic_fetch_add(&foreign_waits, 1);
    if (thread)
        round_await(SHEAF_RCU_PATIENCE_MS);
    else
        round_try();
}

static bool put_single(void *p, void *head)
{
    bool done = single_put(p, head);
    if (done)
        worker_kick();
    return done;
}

/*
 * Without memory for a sheaf the object waits by its head, or this thread waits. In a read-side section neither
 * may be possible; the object is then lost.
 */
static void without_sheaf(const struct sheaf_rcu_allocator *allocator, void *p, void *head)
{
    if (head && put_single(p, head))
        return;
    if (!flavor->read_ongoing()) {
        synchronize();
        allocator->free(p);
        return;
    }
    allocator->note(true);
}

static noinline_cold void free_foreign(void *p, void *head)
{
    bool kept = put_single(p, head), thread = worker_start();
    if (kept) {
        if (unlikely(single_count() > FOREIGN_MOST))
            help(NULL, thread);
        return;
    }
    if (flavor->read_ongoing()) {
        complain("sheaf: kfree_rcu: no memory to defer a free: the object is leaked; name a struct rcu_head in it\n");
        return;
    }
    synchronize();
    free(p);
}

static void mark_used(void)
{
    if (unlikely(!atomic_load_explicit(&used, memory_order_relaxed)))
        atomic_store(&used, true);
}

static void was_put(const struct sheaf_rcu_allocator *allocator, enum sheaf_rcu_put done, void *p, void *head)
{
    int saved = errno;
    bool thread = worker_start();
    if (unlikely(done == SHEAF_RCU_NO_MEMORY))
        without_sheaf(allocator, p, head);
    else if (done == SHEAF_RCU_SEALED && allocator->over_limit())
        help(allocator, thread);
    errno = saved;
}

sheaf_export void sheaf_rcu_free(void *p, void *head)
{
    if (!p)
        return;
    mark_used();
    const struct sheaf_rcu_allocator *allocator = allocator_of(p);
    if (likely(allocator != NULL)) {
        was_put(allocator, allocator->put(p), p, head);
        return;
    }
    int saved = errno;
    free_foreign(p, head);
    errno = saved;
}

sheaf_export void kfree_rcu_nolock(void *p)
{
    const struct sheaf_rcu_allocator *allocator = p ? allocator_of(p) : NULL;
    int saved = errno;
    if (!p)
        return;
    mark_used();
    if (allocator ? allocator->put(p) == SHEAF_RCU_NO_MEMORY : !put_single(p, NULL)) {
        if (allocator)
            allocator->note(true);
        else
            complain("sheaf: kfree_rcu_nolock: no memory to defer a free: the object is leaked\n");
    }
    errno = saved;
}

static const struct sheaf_rcu_allocator *allocator_or_die(const struct kmem_cache *cache)
{
    const struct sheaf_rcu_allocator *allocator = allocator_of_cache(cache);
    if (unlikely(!allocator)) {
        complain("sheaf: deferred free: the cache belongs to no libsheaf that libsheaf-rcu found; link both to the "
                 "program\n");
        abort();
    }
    return allocator;
}

sheaf_export void kmem_cache_free_rcu(struct kmem_cache *cache, void *object)
{
    if (!object)
        return;
    mark_used();
    const struct sheaf_rcu_allocator *allocator = allocator_or_die(cache);
    was_put(allocator, allocator->put_object(cache, object), object, NULL);
}

/* ---- barriers ---- */

static void barrier(const struct sheaf_rcu_allocator *allocator, const struct kmem_cache *cache)
{
    int saved = errno;
    worker_start();
    bool online = flavor->read_ongoing(); /* with QSBR, true for all threads that are not offline */
    if (online)
        flavor->thread_offline();
    if (flavor->read_ongoing())
        complain("sheaf: kvfree_rcu_barrier: called in a read-side section: did not wait; call it outside\n");
    else
        round_barrier(allocator, cache);
    if (online)
        flavor->thread_online();
    errno = saved;
}

sheaf_export void kvfree_rcu_barrier(void)
{
    barrier(NULL, NULL);
}

sheaf_export void kvfree_rcu_barrier_on_cache(struct kmem_cache *cache)
{
    barrier(allocator_or_die(cache), cache);
}

/* ---- start, settings, fork, statistics ---- */

/*
 * Waits before a cache is destroyed. Objects that wait singly do not record their cache, so any of them may belong
 * to it.
 */
static void barrier_on(struct kmem_cache *cache)
{
    if (allocator_of_cache(cache)->waits(cache) || single_count())
        kvfree_rcu_barrier_on_cache(cache);
}

static void start(void)
{
    worker_start();
}

__attribute__((constructor)) static void attach(void)
{
    allocators_find();
    for (unsigned i = 0; i < allocator_count; i++)
        allocators[i]->attach(worker_kick, barrier_on, start);
}

sheaf_export int sheaf_rcu_flavor(const struct rcu_flavor_struct *wanted)
{
    if (atomic_load(&used))
        return -EBUSY;
    flavor = wanted;
    return 0;
}

/*
 * The handlers of call_rcu() come first: its threads may be in a grace period and need the flavour's locks to
 * finish. Afterwards no thread is in a grace period; the worker at most waits to begin one.
 */
static void fork_prepare(void)
{
    if (flavor != &urcu_bp_flavor)
        return;
    urcu_bp_call_rcu_before_fork();
    urcu_bp_before_fork();
}

static void fork_parent(void)
{
    if (flavor != &urcu_bp_flavor)
        return;
    urcu_bp_after_fork_parent();
    urcu_bp_call_rcu_after_fork_parent();
}

static void fork_child(void)
{
    if (flavor != &urcu_bp_flavor)
        return;
    urcu_bp_after_fork_child();
    urcu_bp_call_rcu_after_fork_child();
}

/*
 * Prepare handlers run in reverse order of registration. These wait for readers, so they must run before those
 * that take locks, and are registered last.
 */
sheaf_export int sheaf_rcu_handle_fork(void)
{
    static _Atomic bool done; /* if registered twice, fork() would wait for a lock that it holds itself */
    if (atomic_exchange(&done, true))
        return 0;
    for (unsigned i = 0; i < allocator_count; i++)
        allocators[i]->tune(0, 0); /* makes the allocator register its own handlers first */
    int error = pthread_atfork(fork_prepare, fork_parent, fork_child);
    if (error)
        atomic_store(&done, false);
    return -error;
}

sheaf_export void sheaf_rcu_tune(size_t limit, unsigned age_ms)
{
    for (unsigned i = 0; i < allocator_count; i++)
        allocators[i]->tune(limit, age_ms);
    worker_kick();
}

sheaf_export void sheaf_rcu_stats(struct sheaf_rcu_stats *stats)
{
    memset(stats, 0, sizeof(*stats));
    for (unsigned i = 0; i < allocator_count; i++)
        allocators[i]->stats(stats);
    stats->single = single_count();
    stats->waits += atomic_load(&foreign_waits);
}
