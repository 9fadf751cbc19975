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

/* For hooks.attach_features: set home, node and nodes by the number, and attach the operations below. */
void node_attach(struct kmem_cache *cache, struct cache_shape *shape);

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

#endif
