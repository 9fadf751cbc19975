/*
 * A barn: the full sheaves of one cache in one domain, lock-free. Empty sheaves come from the pool (cache/sheaf.h),
 * so none ever passes through here. Partly filled ones are welcome: what counts is objects.
 *
 * The limit is hard: objects are counted in before the sheaf is put, and counted out after it was taken.
 */
#ifndef SHEAF_CACHE_BARN_H
#define SHEAF_CACHE_BARN_H

#include "cache/sheaf.h"

struct barn {
    sheaf_stack full;
    _Atomic uint64_t held;  /* objects, and in the upper 24 bits sheaves: one addition for both */
    _Atomic uint32_t limit; /* objects; adapts, see barn_missed() */
    _Atomic uint64_t low;   /* fewest objects since the last decay: nobody needed those */
    _Atomic bool refused;   /* since the last refill */
} cache_aligned;

#define BARN_SHEAF_SHIFT 40
static inline uint64_t barn_objects(const struct barn *barn)
{
    return atomic_load_explicit(&barn->held, memory_order_relaxed) & ((1ull << BARN_SHEAF_SHIFT) - 1);
}
static inline uint64_t barn_sheaves(const struct barn *barn)
{
    return atomic_load_explicit(&barn->held, memory_order_relaxed) >> BARN_SHEAF_SHIFT;
}

/* Put it; false when it would exceed the limit. `force` is for signal handlers that have nowhere else to go. */
bool barn_put(struct barn *barn, struct sheaf *sheaf, bool force);
struct sheaf *barn_get(struct barn *barn);

/* A refill from slabs follows a refusal: the barn was too small for the traffic. Grow towards `most`. */
void barn_missed(struct barn *barn, uint32_t most);

/* One step of decay: how many objects were not needed since the last one; the limit shrinks towards `least`. */
uint64_t barn_decay(struct barn *barn, uint32_t least);

#endif
