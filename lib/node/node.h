/*
 * Memory nodes: siblings of a cache, and objects that are freed far from home.
 *
 * With several nodes a cache has one sibling for each, a struct kmem_cache of its own with its slabs, barns, words
 * and counters; the first, whose number is `home`, is the one that the user knows. Slabs of a node lie in its part of
 * the region (region/region.h), and their units have the sibling's id. So:
 *
 * - Sheaves of a sibling are attached to a slot's ends only where slot and sibling are of one node. A free of another
 * node's object therefore finds the constant sheaf and comes to the slow path by itself.
 * - There it is collected in the *outbound* sheaf, which is the spare of (slot, sibling): a full one goes to the
 *   sibling's barn as it is, and each step of decay sends what there is. It is at most one sheaf for each slot and
 *   sibling, and counts as a spare wherever objects are counted.
 * - An allocation begins with a pop from the slot's own sibling: slot_pop_near() adds the slot's `near` to the id.
 *
 * A slot's node is found when a slow path first comes by on its CPU; until then `near` is 0, and what that leads to
 * has no sheaf. It never changes. Caches whose number is in the gap (cache_gap()) have no siblings: they are of all
 * nodes.
 */
#ifndef SHEAF_NODE_NODE_H
#define SHEAF_NODE_NODE_H

#include "cache/kmem_cache.h"
#include "os/numa.h"

/* From number to number of siblings; CACHE_MAX on one node. */
extern hidden unsigned node_stride;

/* Before the first cache. */
void node_init(void);

/* Fill in home, node and nodes by the number. */
void node_setup(struct kmem_cache *cache);

/* Siblings that there may be; those of malloc's classes are set up when they are first used. */
static inline unsigned cache_siblings(const struct kmem_cache *cache)
{
    return cache->nodes ? cache->nodes : 1;
}
static inline struct kmem_cache *cache_sibling(const struct kmem_cache *cache, unsigned index)
{
    return &caches[cache->home + index * node_stride];
}

/* The sibling, set up. */
struct kmem_cache *node_sibling(const struct kmem_cache *cache, unsigned index);

/* The index of a slot's node; -1: the thread moves on, it cannot be told now. */
int node_of_slot(unsigned slot);

/* Make it the sibling that a thread on the slot allocates from; false: it cannot be told now. */
bool node_enter(struct kmem_cache **cache, unsigned slot);

/* The same, or any sibling where it cannot be told. */
struct kmem_cache *node_near_any(struct kmem_cache *cache, unsigned slot);

/* Whether the sibling is of another node than the slot. */
bool node_is_far(const struct kmem_cache *cache, unsigned slot);

/* The barn for whoever is on the slot: one of the cache's own node. */
struct barn *node_barn(const struct kmem_cache *cache, unsigned slot);

/* Take back an object on a slot of another node; false: it must be freed by itself. */
bool node_free(struct kmem_cache *cache, unsigned slot, void *object);

/* A sheaf to its home: barn, else slabs. */
void node_send(struct kmem_cache *cache, unsigned slot, struct sheaf *sheaf);

/* An object of any other sibling, when this one has no memory: what lies in barns and partial slabs, waiting for no
 * lock. NULL: none. */
void *node_alloc_elsewhere(struct kmem_cache *cache, unsigned slot);

/* The same in some of the cases where this one would need a fresh slab: sheaf_config.defrag percent of them. */
void *node_defrag(struct kmem_cache *cache, unsigned slot);

#endif
