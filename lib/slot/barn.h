/*
 * A barn: the full sheaves of one cache in one domain, lock-free. Empty sheaves come from the pool (slot/sheaf.h),
 * so none ever passes through here. Partly filled ones are welcome: what counts is objects.
 *
 * The limit is hard: objects are counted in before the sheaf is put, and counted out after it was taken.
 */
#ifndef SHEAF_SLOT_BARN_H
#define SHEAF_SLOT_BARN_H

#include "slot/sheaf.h"

struct barn {
    sheaf_stack full;
    _Atomic uint64_t held;  /* objects, and in the upper 24 bits sheaves: one addition for both */
    _Atomic uint32_t grown; /* objects, added to the cache's least limit; adapts, see barn_missed(). Zeroed memory is
                               a barn at its least: those of domains that nobody uses are never touched */
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

/* Objects that it may hold, in a cache whose barns begin with `least`. */
static inline uint64_t barn_limit(const struct barn *barn, uint32_t least)
{
    return (uint64_t)least + atomic_load_explicit(&barn->grown, memory_order_relaxed);
}

/* Count a sheaf of so many objects in before it is put. Returns false, with nothing changed, when the barn would then
 * hold more than `limit`, whoever else counts at the same time. */
bool barn_count_in(struct barn *barn, uint64_t objects, uint64_t limit);

/* Put it; false when the barn would then hold more than `limit` objects. BARN_FORCE is for who has nowhere else to
 * go. */
#define BARN_FORCE UINT64_MAX
bool barn_put(struct barn *barn, struct sheaf *sheaf, uint64_t limit);
struct sheaf *barn_get(struct barn *barn);

/* What is left of a sheaf that came from this barn goes back; it was within the limit before. */
static inline void barn_put_rest(struct barn *barn, struct sheaf *sheaf)
{
    if (sheaf->count)
        barn_put(barn, sheaf, BARN_FORCE);
    else
        empty_sheaf_free(sheaf);
}

/* One object out of a sheaf; NULL where the barn has none. */
static inline void *barn_get_object(struct barn *barn)
{
    struct sheaf *full = barn_get(barn);
    if (!full)
        return NULL;
    void *object = full->objects[--full->count];
    barn_put_rest(barn, full);
    return object;
}

/* A refill from slabs follows a refusal: the barn was too small for the traffic. Grow towards `most`. */
void barn_missed(struct barn *barn, uint32_t least, uint32_t most);

/* One step of decay: how many objects were not needed since the last one; with `shrink`, the limit
 * goes towards the least. */
uint64_t barn_decay(struct barn *barn, bool shrink);

#endif
