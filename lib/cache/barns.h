/*
 * The bound on all barns together, which the thread that frees enforces itself. Any context, no lock held.
 */
#ifndef SHEAF_CACHE_BARNS_H
#define SHEAF_CACHE_BARNS_H

#include "cache/sparse.h"

/* Flush a few sheaves of the barn to the slabs. */
void barn_drain_some(struct kmem_cache *cache, unsigned slot, struct barn *barn);

/* Flush what all barns hold beyond their bound, and look whether a burst of allocations has ended. */
void barns_look(void);

/*
 * Count the bytes of objects that went from a slot to a barn, or to the slabs because the barn refused them. Calls
 * barns_look() every 512 KiB. The count is racy on purpose, as slow_calls is: a lost addition only delays a look.
 */
#define BARNS_LOOK_SHIFT 19
static inline void barns_traffic(unsigned slot, uint64_t bytes)
{
    uint64_t *traffic = &slot_head(slot)->barn_traffic;
    uint64_t before = read_once(*traffic), now = before + bytes;
    write_once(*traffic, now);
    if (unlikely(before >> BARNS_LOOK_SHIFT != now >> BARNS_LOOK_SHIFT))
        barns_look();
}

#endif
