/*
 * Deferred frees: objects that readers under RCU may still be looking at.
 *
 * Each slot has, for each cache, one word (slot_rcu()): in its upper 26 bits the offset of a sheaf that collects such
 * objects, 0 for none, and in the lower 6 bits how many threads hold a sheaf that they took from here. Whoever
 * exchanges the offset for 0 owns the sheaf, as with the spare; the count is for the barrier, which must not overlook
 * an object whose free has returned because another thread is putting its own beside it. Number 0 collects large
 * blocks.
 *
 * A sheaf that is full or old is *sealed*: it goes on one stack with all others, whatever their cache, and waits for
 * a grace period as a whole. Then it is a full sheaf like any other: for the spare's place in the slot it came from,
 * the barn of that slot's domain, else the slabs. Nothing is allocated for waiting: what must be known lies in the
 * sheaf's bottom word, which is 0 again afterwards.
 *
 * Who waits for the grace periods is none of our business: libsheaf-rcu (lib/rcu), through deferred/rcu_core.h.
 * Without it nothing here is ever called.
 *
 * No lock, no system call but the kick: all but rcu_finish() may be called in signal handlers at any point. Fork: the
 * stacks are single words; a sheaf that another thread had in hand is lost to the child, its objects stay in use
 * there.
 */
#ifndef SHEAF_DEFERRED_RCU_H
#define SHEAF_DEFERRED_RCU_H

#include "cache/kmem_cache.h"
#include "deferred/rcu_core.h"

#define RCU_LARGE 0 /* the number under which large blocks wait */

/* Take an object of the cache, or a large block of `size` bytes that `free_large` will free. */
enum sheaf_rcu_put rcu_put(struct kmem_cache *cache, void *object);
enum sheaf_rcu_put rcu_put_large(void *p, size_t size);

/* Seal what is at least `age_ms` old (0: all) of one cache, or of all with NULL. SHEAF_RCU_LEFT: some is younger;
 * SHEAF_RCU_HELD: somebody had a sheaf in hand. One caller at a time. */
unsigned rcu_seal(const struct kmem_cache *cache, uint32_t age_ms);

/* Begin to wait for all that is sealed; false: there is nothing. One caller at a time from here to rcu_finish(). */
bool rcu_collect(void);

/* A grace period has passed since: give it all back. Not for signal handlers. */
void rcu_finish(void);

/* Seal what is old; for slow paths, now and then, once hooks.rcu_kick is set. */
void rcu_age(void);

/* Whether anything of the cache waits; exact when nobody frees. */
bool rcu_waits(const struct kmem_cache *cache);

/* Objects of the cache that wait, exact when it is quiet. */
uint64_t rcu_objects(const struct kmem_cache *cache);

/* In the child of a fork, if hooks.rcu_kick is set: nobody else holds anything. `cache` numbers below cache_top. */
void rcu_fork_child(void);

/* A caller waited because of the limit, or an object was lost. */
void rcu_note(bool was_lost);

void rcu_stats(struct sheaf_rcu_stats *stats);

#endif
