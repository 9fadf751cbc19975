/* Returning unused objects of one cache to its slabs: on demand, and by age. */
#ifndef SHEAF_CACHE_DECAY_H
#define SHEAF_CACHE_DECAY_H

#include "cache/kmem_cache.h"

/*
 * Called at the beginning of each slow path. At every 32nd of the slot, it calls hooks.poll() and publishes the
 * figures of the process. No lock held.
 */
void cache_decay(unsigned slot);

/*
 * Flush all sheaves and barns of the cache to its slabs, and return empty slabs to the region. cache_drain() takes
 * the remote drain lock, which keeps the cache from being destroyed meanwhile; in a signal handler that interrupted a
 * holder it does nothing. The caller of cache_drain_locked() holds that lock.
 */
void cache_drain(struct kmem_cache *cache);
void cache_drain_locked(struct kmem_cache *cache);

/* ---- one step of decay (process/decay.c); the remote drain lock is held ---- */

/* Why a step is due: the decay time has passed, slabs grew, or much went through barns. */
enum decay_reason { DECAY_NOT_DUE, DECAY_AGED, DECAY_GROWN, DECAY_CHURNED };

/*
 * Flush the slot's sheaves of the cache if they are idle, that is, unused since the last step. Each class counts by
 * itself: a slot is seldom idle, but a program that changes the sizes it uses leaves sheaves behind whose objects
 * keep slabs from going back.
 */
void decay_slot(struct kmem_cache *cache, unsigned slot);

/* Flush what the barns of the cache can spare, and return empty slabs to the region. Returns the bytes of objects
 * that the barns still hold. */
uint64_t decay_barns(struct kmem_cache *cache, enum decay_reason why);

#endif
