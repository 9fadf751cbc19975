/* Emptying the sheaves of slots from outside: trim, decay, destruction of a cache. */
#ifndef SHEAF_CACHE_REMOTE_H
#define SHEAF_CACHE_REMOTE_H

#include "cache/kmem_cache.h"

enum remote_aim {
    REMOTE_EMPTY, /* flush all sheaves to the slabs */
    REMOTE_COUNT, /* add the operations that the words count to the counters; sheaves stay */
};

/* Drain the sheaves of the cache in the slots [from, to). The caller holds the lock of remote drains. A slot that
 * stays busy keeps its sheaves. */
void remote_drain(struct kmem_cache *cache, unsigned from, unsigned to, enum remote_aim aim);

/* How often a slot's sheaves of a cache were taken over and emptied. */
uint64_t remote_drains(void);

#endif
