/*
 * Deferred frees: objects that RCU readers may still access.
 *
 * Each slot has one word for each cache (slot_rcu()). Its upper 26 bits are the offset of a sheaf that collects
 * such objects, 0 for none; its lower 6 bits count the threads that hold a sheaf taken from it. As with the spare,
 * the thread that exchanges the offset for 0 owns the sheaf. The count is for barriers, which must not miss an
 * object whose free has returned while another thread adds its own object to the same sheaf. Number 0 collects
 * large blocks.
 *
 * A sheaf that is full or old is *sealed*: it is put on one stack with the sheaves of all caches, and waits for a
 * grace period as a whole. Afterwards it is a full sheaf like any other, for the spare's place in the slot that it
 * came from, the barn of that slot's domain, or else the slabs. Waiting allocates nothing: what must be known is
 * in the sheaf's bottom word, which is 0 again afterwards.
 *
 * libsheaf-rcu (lib/rcu) waits for the grace periods, through cache/deferred/rcu_allocator.h. Without it nothing here
 * is called.
 *
 * There is no lock, and no system call but those of the kick and of a lack of memory. All functions but
 * rcu_finish() may be called in signal handlers at any point. Fork: the stacks are single words. A sheaf that
 * another thread held is lost to the child, where its objects stay in use.
 */
#ifndef SHEAF_DEFERRED_RCU_H
#define SHEAF_DEFERRED_RCU_H

#include "cache/kmem_cache.h"
#include "cache/deferred/rcu_allocator.h"

#define RCU_LARGE 0 /* the number that stands for large blocks */

/* Defer the free of an object of the cache, or of a large block of `size` bytes. Any context. */
enum sheaf_rcu_put rcu_put(struct kmem_cache *cache, void *object);
enum sheaf_rcu_put rcu_put_large(void *p, size_t size);

/*
 * Seal the sheaves of one cache, or of all with NULL, that are at least `age_ms` old (0: all). Returns
 * SHEAF_RCU_LEFT if younger ones remain, and SHEAF_RCU_HELD if a thread held a sheaf, whose objects may have been
 * missed. One caller at a time.
 */
unsigned rcu_seal(const struct kmem_cache *cache, uint32_t age_ms);

/* Collect all that is sealed, before a grace period begins. Returns false if there is nothing. One caller at a
 * time from here to rcu_finish(). */
bool rcu_collect(void);

/* Free what rcu_collect() collected; a grace period must have passed since. Not for signal handlers. */
void rcu_finish(void);

/* Seal what is older than the option rcu_age; called by steps of decay once hooks.rcu_kick is set. */
void rcu_age(void);

/* Whether objects of the cache wait; exact while no thread frees any. */
bool rcu_waits(const struct kmem_cache *cache);

/* The number of objects of the cache that wait; exact while the cache is quiet. */
uint64_t rcu_objects(const struct kmem_cache *cache);

/* Called in the child of a fork if hooks.rcu_kick is set: forget the holds of threads that do not exist there. */
void rcu_fork_child(void);

/* Count a caller that waited because of the limit or, with `was_lost`, an object that was leaked. */
void rcu_note(bool was_lost);

void rcu_stats(struct sheaf_rcu_stats *stats);

#endif
