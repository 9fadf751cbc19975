/* Emptying the sheaves of slots from outside: trim, decay, destruction of a cache. */
#ifndef SHEAF_CACHE_TAKEOVER_H
#define SHEAF_CACHE_TAKEOVER_H

#include "cache/kmem_cache.h"

enum takeover_aim {
    TAKEOVER_EMPTY, /* flush all sheaves to the slabs */
    TAKEOVER_COUNT, /* bring the operations counted in the words to the counters, and leave the sheaves where they are
                     */
};

/* For the slots [from, to). The lock of takeovers is held. A slot that stays busy is left. */
void takeover(struct kmem_cache *cache, unsigned from, unsigned to, enum takeover_aim aim);

/* Slots whose ends were taken so far, each class by itself. */
uint64_t takeover_count(void);

#endif
