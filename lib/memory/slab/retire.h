/*
 * Slabs of caches with SLAB_TYPESAFE_BY_RCU return to the region after a grace period, because readers may still
 * access their objects until then and must see memory of that type. Lock-free and safe in signal handlers; the
 * child of a fork inherits the slabs that wait.
 */
#ifndef SHEAF_SLAB_RETIRE_H
#define SHEAF_SLAB_RETIRE_H

#include "memory/slab/slab.h"

/* Let a slab wait for a grace period. It is on no list and its slices belong to no cache any more. */
void slab_retire(struct slab *slab);

/*
 * Begin the wait of all retired slabs; returns false if there are none. After a grace period
 * slab_retired_release() frees them. Only one thread at a time may be between the two calls.
 */
bool slab_retired_collect(void);
void slab_retired_release(void);

uint64_t slab_retired_count(void);

#endif
