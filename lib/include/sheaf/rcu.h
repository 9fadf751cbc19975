/*
 * Deferred frees, with the kernel's interface (linux/rcupdate.h, linux/slab.h, 7.0): memory is freed once all
 * readers that may access it have left their read-side sections. Link with libsheaf-rcu (pkg-config sheaf-rcu),
 * which uses liburcu for the grace periods (liburcu-bp, whose readers need no registration).
 *
 * Memory that may be freed here: objects of kmem caches, and everything from Sheaf's malloc, linked or preloaded,
 * including large blocks. Memory of another malloc is accepted as well; such objects wait singly.
 *
 * Functions may be called from any thread, including inside read-side sections, unless stated otherwise; they
 * leave errno alone. Freed objects are collected for each CPU and wait together, once they fill a sheaf or after
 * some milliseconds. A thread of the library, started by the first such free, waits for the grace periods.
 *
 * When more memory waits than the limit (sheaf_rcu_tune(), SHEAF_RCU_LIMIT), a caller that fills another sheaf
 * waits for a grace period, but at most SHEAF_RCU_PATIENCE_MS, and not in a read-side section. So frees may be
 * called while holding locks that readers need: if grace periods do not end, frees become slow but never deadlock.
 *
 * After fork() the waiting memory waits in both processes. As with all of liburcu-bp, a child that continues
 * without exec needs calls of rcu_bp_before_fork() and its counterparts; sheaf_rcu_handle_fork() makes them for
 * programs that do not. The child's first deferred free, barrier or cache with SLAB_TYPESAFE_BY_RCU starts a
 * thread in the child.
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
 * kfree_rcu(pointer) or kfree_rcu(pointer, member). `member` is a struct rcu_head in the object, or anything of 16
 * bytes aligned to 8 that readers do not look at. It is used only when there is no memory for a sheaf. In that
 * case the form without it waits for a grace period itself; in a read-side section, where it cannot wait, the
 * memory is leaked (and counted as lost). A NULL pointer is allowed. kvfree_rcu() is the same.
 */
#define kfree_rcu(...)             SHEAF_RCU_PICK(__VA_ARGS__, SHEAF_RCU_TWO, SHEAF_RCU_ONE, 0)(__VA_ARGS__)
#define kvfree_rcu(...)            kfree_rcu(__VA_ARGS__)
#define kfree_rcu_mightsleep(ptr)  sheaf_rcu_free((ptr), NULL)
#define kvfree_rcu_mightsleep(ptr) sheaf_rcu_free((ptr), NULL)

/*
 * kfree_rcu() for signal handlers: never waits and never starts the thread. If the thread does not run yet, the
 * memory waits until another function of this file starts it. In a signal handler, not for memory of another
 * malloc, which would be called.
 */
void kfree_rcu_nolock(void *ptr);

/* Free an object of the cache after a grace period. */
void kmem_cache_free_rcu(struct kmem_cache *cache, void *object);

/*
 * Wait until everything that was passed to the functions above before this call is freed, or everything of one
 * cache. Not in a read-side section (which is reported; the function then returns at once) and not in signal
 * handlers. An online reader of the QSBR flavour is offline meanwhile. kmem_cache_destroy() calls the second
 * function if objects wait.
 */
void kvfree_rcu_barrier(void);
void kvfree_rcu_barrier_on_cache(struct kmem_cache *cache);

/*
 * Use another flavour of liburcu than bp: `flavor` is &rcu_flavor of the header that the program's readers
 * include. Returns 0, or -EBUSY after the first deferred free.
 */
struct rcu_flavor_struct;
int sheaf_rcu_flavor(const struct rcu_flavor_struct *flavor);

/*
 * Register liburcu's handlers for fork(): those of call_rcu() and, for bp, of the flavour itself. Only for
 * programs that do not call them themselves. Must be called before the first fork, and then fork() must not be
 * called in a read-side section. Returns 0 or a negative error number from pthread_atfork(). Further calls do
 * nothing.
 */
int sheaf_rcu_handle_fork(void);

/*
 * Set how many bytes may wait before callers help, and after how many milliseconds a sheaf that is not full waits
 * for a grace period. 0 keeps a value. The defaults are 64 MiB and 50 ms, or SHEAF_RCU_LIMIT and SHEAF_RCU_AGE
 * with the preloaded object.
 */
void sheaf_rcu_tune(size_t limit, unsigned age_ms);

struct sheaf_rcu_stats {
    uint64_t bytes;         /* in sealed sheaves and in large blocks, waiting now */
    uint64_t sheaves;       /* sealed sheaves, waiting now */
    uint64_t slabs;         /* slabs of caches with SLAB_TYPESAFE_BY_RCU, waiting now */
    uint64_t grace_periods; /* grace periods that were waited for */
    uint64_t waits;         /* callers that waited because of the limit */
    uint64_t lost;          /* objects leaked because there was no memory to keep track of them */
    uint64_t single;        /* objects that wait singly */
};
void sheaf_rcu_stats(struct sheaf_rcu_stats *stats);

/* The function behind kfree_rcu(); `head` may be NULL. */
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
