/*
 * Holes: free pages, returned to the system, inside slabs with few objects out.
 *
 * Holes are made only where they free at least a third of the slab, and only once for each slab until an object is
 * taken from it or half of the objects that were out have come back. Refills take from slabs with holes last. If
 * they do take from most of them soon, the cache is skipped for a while.
 */
#ifndef SHEAF_SLAB_HOLES_H
#define SHEAF_SLAB_HOLES_H

#include "memory/slab/slab.h"

/*
 * Return free pages of the cache's slabs to the system; returns the bytes. The contents of free objects are lost,
 * so this is not for caches with a constructor, with SLAB_TYPESAFE_BY_RCU or with patterns in free objects. Slabs
 * are off the lists during the system calls. The caller therefore holds the lock of remote drains, which keeps out
 * forks and the destruction of caches, and no lock that follows it.
 */
size_t slab_holes(struct slab_cache *cache);

/* The bytes that all calls have returned. */
uint64_t slab_hole_bytes(void);

#endif
