/* Emptying the sheaves of slots from outside: trim, decay, destruction of a cache. */
#ifndef SHEAF_CACHE_TAKEOVER_H
#define SHEAF_CACHE_TAKEOVER_H

#include "cache/kmem_cache.h"

extern struct lock takeover_lock;

/* Flush main and spare sheaves of the slots [from, to) to the slabs. takeover_lock is held. A slot that stays busy is left. */
void takeover(struct kmem_cache *cache, unsigned from, unsigned to);

/* Main sheaves taken so far. */
uint64_t takeover_count(void);

#endif
