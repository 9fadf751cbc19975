/* The bound on all barns together, which the thread that frees enforces itself. Any context, no lock held. */
#ifndef SHEAF_CACHE_BARNS_H
#define SHEAF_CACHE_BARNS_H

#include "cache/sparse.h"

/* Flush a few sheaves of the barn to the slabs. */
void barn_drain_some(struct kmem_cache *cache, unsigned slot, struct barn *barn);

/* Flush what all barns hold beyond their bound, and raise the mark below. */
void barns_poll(void);

/*
 * Count the bytes of objects that went from a slot to a barn, or to the slabs because the barn refused them. Calls
 * barns_poll() every 512 KiB. The count is racy on purpose, as slow_calls is: a lost addition only delays the
 * check.
 */
#define BARNS_POLL_SHIFT 19
static inline void barns_traffic(unsigned slot, uint64_t bytes)
{
    uint64_t *traffic = &slot_head(slot)->barn_traffic;
    uint64_t before = read_once(*traffic), now = before + bytes;
    write_once(*traffic, now);
    if (unlikely(before >> BARNS_POLL_SHIFT != now >> BARNS_POLL_SHIFT))
        barns_poll();
}

/*
 * The end of a burst: the slices of all slabs have fallen to half of their peak or, after that, by another eighth.
 * The last frees of a burst may be the program's last calls, so the thread that frees checks this after each
 * flush. While the remote drain lock is taken, hooks.burst_ended does nothing, and the next flush checks again.
 */
extern hidden _Atomic uint32_t burst_mark; /* slices in slabs below which a burst ends */
static inline bool burst_fell(void)
{
    return (uint32_t)read_once(region_stats.slab_slices) < atomic_load_explicit(&burst_mark, memory_order_relaxed);
}
static inline void burst_poll(void)
{
    if (unlikely(burst_fell()))
        hooks.burst_ended();
}

/* The fall was handled: set the mark an eighth lower than slabs are now. The remote drain lock is held. */
void burst_handled(void);

#endif
