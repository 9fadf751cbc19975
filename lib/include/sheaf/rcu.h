/*
 * Deferred frees, with the kernel's interface (linux/rcupdate.h, linux/slab.h, 7.0): memory is freed once all readers
 * that may look at it have left their read-side sections. Link with libsheaf-rcu (pkg-config sheaf-rcu), which brings
 * liburcu (liburcu-bp: its readers need no registration) for the grace periods.
 *
 * What may be freed: objects of kmem caches, and all memory from Sheaf's malloc, whether Sheaf is linked or
 * preloaded, large blocks included. Memory of another malloc is taken too: then each object waits by itself.
 *
 * Functions may be called from any thread, also inside read-side sections, unless they say otherwise; errno is left
 * alone. Freed objects are collected for each CPU, and wait together when there are enough of them or after some
 * milliseconds. A thread of the library, started by the first such free, waits for the grace periods.
 *
 * Bound: when more waits than the limit (sheaf_rcu_tune(), SHEAF_RCU_LIMIT), a caller that brings a whole sheaf more
 * waits for a grace period, but at most SHEAF_RCU_PATIENCE_MS, and not in a read-side section. So it may be called
 * with locks held for which readers wait: grace periods that do not come make it slow, never stuck.
 *
 * Fork: what waits, waits in the child too. As with all of liburcu-bp, a child that goes on without exec needs
 * rcu_bp_before_fork() and its fellows called; a program that does not do that itself lets sheaf_rcu_handle_fork() do
 * it. The child's first deferred free, or barrier, or cache with SLAB_TYPESAFE_BY_RCU, starts a thread of its own.
 */
#ifndef SHEAF_RCU_H
#define SHEAF_RCU_H

#include <sheaf/kmem_cache.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SHEAF_RCU_PATIENCE_MS 20

/*
 * kfree_rcu(pointer), or kfree_rcu(pointer, member): `member` is a struct rcu_head in the object, or anything of 16
 * bytes aligned to 8 that readers do not look at. It is only used when there is no memory for a sheaf. Then the form
 * without it waits for a grace period itself; in a read-side section, where it cannot wait, the memory is lost (and
 * counted). NULL is allowed. kvfree_rcu() is the same.
 */
#define kfree_rcu(...)             SHEAF_RCU_PICK(__VA_ARGS__, SHEAF_RCU_TWO, SHEAF_RCU_ONE, 0)(__VA_ARGS__)
#define kvfree_rcu(...)            kfree_rcu(__VA_ARGS__)
#define kfree_rcu_mightsleep(ptr)  sheaf_rcu_free((ptr), NULL)
#define kvfree_rcu_mightsleep(ptr) sheaf_rcu_free((ptr), NULL)

/* For signal handlers: as kfree_rcu(), but never waits and never starts the thread: the memory waits until somebody
 * calls another function of this file. Not for memory of another malloc there: that malloc would be called. */
void kfree_rcu_nolock(void *ptr);

/* An object of the cache, after a grace period. */
void kmem_cache_free_rcu(struct kmem_cache *cache, void *object);

/*
 * Wait until all that was given to the functions above before the call is free, or all of one cache. Not in a
 * read-side section (that is reported, and it returns at once) nor in a signal handler. An online reader of the QSBR
 * flavour is offline meanwhile. kmem_cache_destroy() does the second by itself, where something waits.
 */
void kvfree_rcu_barrier(void);
void kvfree_rcu_barrier_on_cache(struct kmem_cache *cache);

/*
 * Another flavour of liburcu than bp: `flavor` is &rcu_flavor of the header that the program's readers include. 0, or
 * -EBUSY once something was freed here.
 */
struct rcu_flavor_struct;
int sheaf_rcu_flavor(const struct rcu_flavor_struct *flavor);

/*
 * Register liburcu's handlers for fork(): those of call_rcu() and, for bp, of the flavour itself. Only in programs
 * that do not call them themselves, and before the first fork; fork() must not be called in a read-side section then.
 * 0, or an error of pthread_atfork(), negative. Further calls do nothing.
 */
int sheaf_rcu_handle_fork(void);

/* Bytes that may wait before callers help, and milliseconds after which a sheaf that does not fill waits for a grace
 * period; 0 leaves it as it is (64 MiB, 50 ms, or SHEAF_RCU_LIMIT and SHEAF_RCU_AGE under the preloaded object). */
void sheaf_rcu_tune(size_t limit, unsigned age_ms);

struct sheaf_rcu_stats {
    uint64_t bytes;         /* in sealed sheaves and large blocks that wait now */
    uint64_t sheaves;       /* sealed, waiting now */
    uint64_t slabs;         /* of caches with SLAB_TYPESAFE_BY_RCU that wait to go back */
    uint64_t grace_periods; /* that something was waited for */
    uint64_t waits;         /* callers that waited because of the limit */
    uint64_t lost;          /* objects that could not be kept for want of memory */
    uint64_t single;        /* objects that wait by themselves */
};
void sheaf_rcu_stats(struct sheaf_rcu_stats *stats);

/* What kfree_rcu() calls; head may be NULL. */
void sheaf_rcu_free(void *ptr, void *head);

#define SHEAF_RCU_PICK(one, two, name, ...) name
#define SHEAF_RCU_ONE(ptr)                  sheaf_rcu_free((ptr), NULL)
#define SHEAF_RCU_TWO(ptr, member)                                                                                   \
    do { /* each is evaluated once */                                                                                \
        __typeof__(ptr) sheaf_rcu_ptr = (ptr);                                                                       \
        size_t sheaf_rcu_none = 0 * sizeof(char[sizeof(sheaf_rcu_ptr->member) >= 16 ? 1 : -1]);                      \
        sheaf_rcu_free(sheaf_rcu_ptr,                                                                                \
                       sheaf_rcu_ptr ? (void *)((char *)&sheaf_rcu_ptr->member + sheaf_rcu_none) : NULL);            \
    } while (0)

#ifdef __cplusplus
}
#endif

#endif
