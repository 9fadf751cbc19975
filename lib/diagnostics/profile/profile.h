/*
 * Sampling of malloc's allocations with their call stacks, for `sheaf profile`.
 *
 * Which allocations are sampled is drawn in advance (sampler.h), and the sheaves of a slot get no more objects than
 * may be allocated until then (ops->limit), so that fast paths do not change and take no part. A sampled object
 * comes from the *sampled cache* of its class: a cache with objects of at least the same size and alignment, but
 * without sheaves, so that its free takes the slow path, which removes the sample. A sampled large block is marked in
 * its slice. Allocations of instrumented caches, of large blocks under debugging, and of kmem_cache_alloc() are not
 * sampled.
 */
#ifndef SHEAF_PROFILE_PROFILE_H
#define SHEAF_PROFILE_PROFILE_H

#include "cache/kmem_cache.h"

/*
 * Sampled caches have numbers in the gap behind malloc's caches (cache/slot/page.h), where all words are 0 but those
 * of the span cache, and in the same group of counters as these. Up to 128 bytes each class has a sampled cache of
 * its own; above, each two classes share that of the larger one. Its size is a multiple of the largest power of two
 * that divides the smaller size (cache/slot/spacing.def).
 */
#define SAMPLED_FIRST (CACHE_GAP + 2)
#define SAMPLED_PAIRS (CACHE_FIRST + CLASS_128 + 1) /* the first class of the first pair */
#define SAMPLED_END   (SAMPLED_FIRST + (SAMPLED_PAIRS - CACHE_FIRST) + (CACHE_GAP - SAMPLED_PAIRS) / 2)
_Static_assert(SLOT_WORD_AT(SAMPLED_FIRST) >= SPAN_CACHE_END && SAMPLED_END <= COUNTER_GROUP,
               "sampled caches have words and counters");
_Static_assert((CACHE_GAP - SAMPLED_PAIRS) % 2 == 0, "each class above 128 bytes is one of a pair");
static inline unsigned sampled_number(unsigned class)
{
    return SAMPLED_FIRST +
           (class < SAMPLED_PAIRS ? class - CACHE_FIRST : SAMPLED_PAIRS - CACHE_FIRST + (class - SAMPLED_PAIRS) / 2);
}
static inline uint32_t sampled_size(unsigned class)
{
    bool smaller = class >= SAMPLED_PAIRS && (class - SAMPLED_PAIRS) % 2 == 0; /* of a pair */
    return class_size(class + smaller);
}

/* Whether allocations are sampled now. */
extern hidden bool profile_on;

/* Called while a cache is being set up (hooks.attach_features). Programs without samples do not touch the code. */
void profile_attach_slow(struct kmem_cache *cache, struct cache_shape *shape);
static inline void profile_attach(struct kmem_cache *cache, struct cache_shape *shape)
{
    if (unlikely(read_once(profile_on) || cache_gap(cache->number)))
        profile_attach_slow(cache, shape);
}

/* Switch sampling on, with one sample for each `rate` bytes, or off (0). Returns false if there is no memory. May be
 * called again at any time, without a lock; the caller then folds all words, so that they know of it. */
bool profile_switch(uint64_t rate);

/* In the child of a fork. */
void profile_fork_child(void);

/* ---- large blocks ---- */

/* Sampled blocks that lie outside the region. */
extern hidden _Atomic uint32_t profile_mapped;

/* Draw whether to sample a new block of n bytes, which is in use. */
void profile_large(void *p, size_t n);

/* A sampled block of the region is about to be freed; or any block outside it, while profile_mapped is not 0. */
void profile_large_freed(void *p);
void profile_mapped_freed(void *p);

#endif
