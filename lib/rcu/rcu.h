/*
 * libsheaf-rcu inside: grace periods for the Sheafs that are loaded (cores.c), one round of waiting at a time
 * (round.c), the thread that does it (worker.c), objects that wait by themselves (single.c), the interface (free.c).
 *
 * Lock: `round`, held over a grace period; the worker and barriers take it, never a free, but where there is no
 * worker. A free that waits does so on a futex, for a limited time. Fork: the child makes the lock anew (worker.c).
 */
#ifndef SHEAF_RCU_RCU_H
#define SHEAF_RCU_RCU_H

#include "deferred/rcu_core.h"
#include "os/compiler.h"

#include <urcu/flavor.h>

/* ---- cores.c ---- */

#define CORES 2 /* libsheaf, and the preloaded object */
extern hidden const struct sheaf_rcu_core *cores[CORES];
extern hidden unsigned core_count;

/* Whose memory it is; NULL: another malloc's. */
const struct sheaf_rcu_core *core_of(const void *p);
const struct sheaf_rcu_core *core_of_cache(const struct kmem_cache *cache);

extern hidden const struct rcu_flavor_struct *flavor;

/* ---- round.c ---- */

/* Wait for a grace period if anything waits for one, and give all that back. Not in a read-side section. */
bool round_run(void);

/* The same, if nobody else is at it. */
void round_try(void);

/* Seal what is old in all cores; whether something is left that is younger. */
bool round_seal(void);

/* Seal all of the cache, or everything with NULL, and run a round if anything waits. */
void round_barrier(const struct sheaf_rcu_core *core, const struct kmem_cache *cache);

/* Wait until a round ends, at most so long. */
void round_await(unsigned ms);
void round_fork_child(void);

/* ---- worker.c ---- */

/* Start the thread unless it runs; false: there is none. */
bool worker_start(void);
void worker_kick(void);

/* ---- single.c ---- */

/* Keep the object by `head`, 16 bytes that readers do not look at; with NULL, by memory of the other malloc. It
 * cannot be kept: false. */
bool single_put(void *p, void *head);
bool single_collect(void);
void single_finish(void);
uint64_t single_count(void);

#endif
