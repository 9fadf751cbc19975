/*
 * Moving sheaves that belong to the calling thread alone: to and from the spare, the barn, and the slabs.
 *
 * Every function may be called in any context with no lock held. A sheaf passes from one place to the next by a
 * single atomic operation, so a thread that is preempted, migrated or interrupted in between keeps its sheaf. A child
 * of fork loses the sheaves that other threads had detached at that moment.
 */
#ifndef SHEAF_CACHE_SHEAVES_H
#define SHEAF_CACHE_SHEAVES_H

#include "cache/kmem_cache.h"

/* ---- the spare ---- */

/* Take the spare of a slot; NULL if there is none. */
struct sheaf *cache_take_spare(unsigned slot, struct word_id id);

/* Make the sheaf the slot's spare. Returns false if there is one already. */
bool cache_put_spare(unsigned slot, struct word_id id, struct sheaf *sheaf);

/* The number of objects in the spare, -1 if there is none: a hint, because another thread may take it meanwhile.
 * Looking before taking saves two locked instructions if the spare is of no use. */
int cache_spare_holds(unsigned slot, struct word_id id);

/* Count that the end whose word was `top` and the spare, which the caller took, change places. Returns the spare, or
 * a larger sheaf with its objects where swaps are frequent. */
struct sheaf *cache_swap_spare(struct kmem_cache *cache, unsigned slot, uint64_t top, struct sheaf *spare);

/* ---- capacity ---- */

/* The capacity of the next sheaf of this slot: one step larger on each call, within the slot's budget. */
unsigned cache_next_capacity(const struct kmem_cache *cache, unsigned slot);

/* Let the slot's sheaves hold `capacity` objects. Returns false if its budget does not allow that, unless `force`. */
bool cache_grow_sheaves(const struct kmem_cache *cache, unsigned slot, unsigned capacity, bool force);

/* ---- sheaves in no slot ---- */

/* Flush the objects to the slabs. Returns false, with nothing changed, in a signal handler that interrupted the
 * holder of the cache's lock. */
bool cache_flush_sheaf(struct kmem_cache *cache, unsigned slot, struct sheaf *sheaf);

/* Flush the objects and return the empty sheaf to the pool. Returns false if they could not be flushed now; the
 * sheaf is then in the barn, whatever its limit. */
bool cache_empty_sheaf(struct kmem_cache *cache, unsigned slot, struct sheaf *sheaf, struct barn *barn);

/* The same, but objects go to the standing reserve first if that is short. */
void cache_discard_sheaf(struct kmem_cache *cache, unsigned slot, struct sheaf *sheaf);

/* Put the sheaf where it is most useful: spare, barn, or slabs. */
void cache_put_sheaf(struct kmem_cache *cache, unsigned slot, struct sheaf *sheaf);

/* Put the sheaf into the barn for this thread. Returns false if the barn is full, unless `force`. */
bool cache_barn_put(struct kmem_cache *cache, unsigned slot, struct sheaf *sheaf, bool force);

#endif
