/*
 * A barn: the full sheaves of one cache in one domain, on a lock-free stack. Partly filled sheaves are accepted,
 * because limits count objects. Empty sheaves are in the pool of all caches (cache/slot/sheaf.h).
 *
 * The limit is never exceeded, except by BARN_FORCE: objects are counted in before a sheaf is put, and counted out
 * after it was taken.
 */
#ifndef SHEAF_SLOT_BARN_H
#define SHEAF_SLOT_BARN_H

#include "cache/slot/sheaf.h"

struct barn {
    struct sheaf_stack full;
    _Atomic uint64_t held;  /* objects, and in the upper 24 bits sheaves, so that one addition changes both */
    _Atomic uint32_t grown; /* objects by which the limit exceeds the cache's least; see barn_missed(). Zeroed memory
                               is an empty barn, so that those of unused domains are never touched */
    _Atomic uint64_t low;   /* fewest objects since the last step of decay: so many were not needed */
    _Atomic bool refused;   /* whether a sheaf was refused since the last barn_missed() */
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

/* The objects that it may hold, in a cache whose least limit is `least`. */
static inline uint64_t barn_limit(const struct barn *barn, uint32_t least)
{
    return (uint64_t)least + atomic_load_explicit(&barn->grown, memory_order_relaxed);
}

/*
 * Count in a sheaf of so many objects. Returns false, with nothing changed, if the barn would hold more than `limit`,
 * those objects included that other threads are counting in.
 */
bool barn_count_in(struct barn *barn, uint64_t objects, uint64_t limit);

/* Put a sheaf. Returns false if the barn would hold more than `limit` objects; BARN_FORCE is no limit. */
#define BARN_FORCE UINT64_MAX
bool barn_put(struct barn *barn, struct sheaf *sheaf, uint64_t limit);

/* Take a sheaf; NULL if there is none. */
struct sheaf *barn_get(struct barn *barn);

/* Put the rest of a sheaf that came from this barn. Its objects were within the limit before. */
static inline void barn_put_rest(struct barn *barn, struct sheaf *sheaf)
{
    if (sheaf->count)
        barn_put(barn, sheaf, BARN_FORCE);
    else
        empty_sheaf_free(sheaf);
}

/* Take one object out of a sheaf; NULL if the barn has none. */
static inline void *barn_get_object(struct barn *barn)
{
    struct sheaf *full = barn_get(barn);
    if (!full)
        return NULL;
    void *object = full->objects[--full->count];
    barn_put_rest(barn, full);
    return object;
}

/*
 * To be called at a refill from slabs. If the barn has refused a sheaf before, it was too small for the traffic, and
 * its limit grows by half, to `most` at most.
 */
void barn_missed(struct barn *barn, uint32_t least, uint32_t most);

/*
 * To be called at a step of decay: returns how many objects were not needed since the last one. With `shrink`, the
 * limit falls by a quarter of what it exceeds the least by.
 */
uint64_t barn_decay(struct barn *barn, bool shrink);

#endif
