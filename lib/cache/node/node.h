/*
 * Memory nodes: siblings of a cache, and objects that are freed on another node.
 *
 * With several nodes a cache has one sibling for each node, a struct kmem_cache with slabs, barns, words and
 * counters of its own. The first sibling, whose number is `home`, is the one that the user created. Slabs of a node
 * lie in its part of the region (memory/region/region.h), and their slices have the sibling's id. Hence:
 *
 * - Sheaves of a sibling are attached to a slot's ends only if slot and sibling belong to one node. A free of
 *   another node's object therefore finds the constant sheaf and takes the slow path.
 * - The slow path collects it in the *outbound* sheaf, which takes the place of the spare of (slot, sibling). A
 *   full one goes to the sibling's barn as it is, and each step of decay sends what has been collected. There is
 *   at most one such sheaf for each slot and sibling, and it counts as a spare wherever objects are counted.
 * - An allocation starts with a pop from the sibling of the slot's node: slot_pop_local() adds the slot's `local` to
 *   the id.
 *
 * A slot's node is found by the first slow path on its CPU, and never changes. Until then `local` is 0, which leads
 * to a word without a sheaf. Caches whose numbers are in the gap (cache_gap()) have no siblings and serve all
 * nodes.
 */
#ifndef SHEAF_NODE_NODE_H
#define SHEAF_NODE_NODE_H

#include "cache/kmem_cache.h"
#include "platform/os/numa.h"

/* The distance between the numbers of siblings; CACHE_MAX with one node. */
extern hidden unsigned node_stride;

/* Called at the start, before the first cache is set up. */
void node_init(void);

/* Part of hooks.attach_features: set home, node and nodes by the cache's number, and attach the operations of
 * nodes. */
void node_attach(struct kmem_cache *cache, struct cache_shape *shape);

/* The number of siblings, at least 1; those of malloc's classes are set up when they are first used. */
static inline unsigned cache_siblings(const struct kmem_cache *cache)
{
    return cache->nodes ? cache->nodes : 1;
}
static inline struct kmem_cache *cache_sibling(const struct kmem_cache *cache, unsigned index)
{
    return cache_at(cache->home + index * node_stride);
}

/* The sibling of the node with this index, set up if it was not. Any context. */
struct kmem_cache *node_sibling(const struct kmem_cache *cache, unsigned index);

/* The index of the slot's node; -1 if it is not known yet and the thread is not on the slot's CPU. */
int node_of_slot(unsigned slot);

#endif
