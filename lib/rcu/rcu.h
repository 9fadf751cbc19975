/*
 * Internals of libsheaf-rcu: the interface (free.c), the thread that waits for grace periods (worker.c), rounds, each
 * of which waits for one (round.c), objects that wait singly (single.c), and the allocators that are loaded
 * (allocators.c). Each calls only those after it.
 *
 * A mutex, `running` in round.c, is held during a round. The worker and barriers take it; a free only tries it,
 * and only if there is no worker. A free that waits does so on a futex, for a limited time. The child of a fork
 * initializes the mutex anew.
 */
#ifndef SHEAF_RCU_RCU_H
#define SHEAF_RCU_RCU_H

#include "cache/deferred/rcu_allocator.h"
#include "platform/os/compiler.h"

#include <urcu/flavor.h>

/* ---- allocators.c ---- */

#define ALLOCATORS 2 /* libsheaf, and the preloaded object */
extern hidden const struct sheaf_rcu_allocator *allocators[ALLOCATORS];
extern hidden unsigned allocator_count;

/* Fill the table. Called once, when the library is loaded. */
void allocators_find(void);

/* The allocator that owns the memory; NULL if none does. */
const struct sheaf_rcu_allocator *allocator_of(const void *p);
const struct sheaf_rcu_allocator *allocator_of_cache(const struct kmem_cache *cache);

/* ---- round.c ---- */

/* The flavour of liburcu whose grace periods rounds wait for. */
extern hidden const struct rcu_flavor_struct *flavor;

/*
 * If anything waits for a grace period, wait for one and free what waited; returns whether anything did. Not in a
 * read-side section.
 */
bool round_run(void);

/* The same, unless another thread is running a round. */
void round_try(void);

/* Seal sheaves in all allocators that are old enough; returns whether younger ones remain. */
bool round_seal(void);

/*
 * Seal everything that the allocator holds for the cache, or everything if both are NULL, and run a round if anything
 * waits.
 */
void round_barrier(const struct sheaf_rcu_allocator *allocator, const struct kmem_cache *cache);

/* Wait until a round ends, at most `ms` milliseconds. */
void round_await(unsigned ms);
void round_fork_child(void);

/* ---- worker.c ---- */

/* Start the thread unless it runs. Returns false when no thread can be created. Not for signal handlers. */
bool worker_start(void);
void worker_kick(void);

/* ---- single.c ---- */

/*
 * Let an object wait singly; the caller wakes the worker. It is recorded in `head`, 16 bytes that readers do not look
 * at, or with NULL in memory of the program's malloc. Returns false when there is no such memory.
 */
bool single_put(void *p, void *head);
bool single_collect(void);
void single_finish(void);
uint64_t single_count(void);

#endif
