/* Emptying the sheaves of slots from outside: trim, decay, destruction of a cache. */
#ifndef SHEAF_CACHE_TAKEOVER_H
#define SHEAF_CACHE_TAKEOVER_H

#include "cache/kmem_cache.h"

enum takeover_aim {
    TAKEOVER_EMPTY, /* flush all sheaves to the slabs */
    TAKEOVER_COUNT, /* add the operations that the words count to the counters; sheaves stay */
};

/* Take over the sheaves of the cache in the slots [from, to). The caller holds the lock of takeovers. A slot that
 * stays busy keeps its sheaves. */
void takeover(struct kmem_cache *cache, unsigned from, unsigned to, enum takeover_aim aim);

/* How often a slot's sheaves of a cache were taken over and emptied. */
uint64_t takeover_count(void);

#endif
