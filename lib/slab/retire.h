/*
 * Slabs of caches with SLAB_TYPESAFE_BY_RCU on their way back to the region: readers may look at their objects until
 * a grace period is over, so that what they see stays memory of that type. Any context; fork as for all stacks.
 */
#ifndef SHEAF_SLAB_RETIRE_H
#define SHEAF_SLAB_RETIRE_H

#include "slab/slab.h"

/* The slab belongs to no list, and its units to no cache any more. */
void slab_retire(struct slab *slab);

/* All that are retired begin to wait; false: there are none. By one thread at a time, up to the release. */
bool slab_retired_collect(void);
void slab_retired_release(void);

uint64_t slab_retired_count(void);

#endif
