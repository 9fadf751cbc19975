/*
 * Holes: free pages inside slabs of which little is out, given back to the system.
 *
 * Only where that gives back a third of the slab or more, and once for each slab, until something is taken from it
 * again or half of what was out of it has come back. Slabs with holes are the last that a refill takes from. Where it
 * does nevertheless, soon and from most of them, the cache is left alone for a while.
 */
#ifndef SHEAF_SLAB_HOLES_H
#define SHEAF_SLAB_HOLES_H

#include "slab/slab.h"

/*
 * Give back free pages of the cache's slabs. Contents of free objects are lost: not for caches with a constructor,
 * typesafe ones, and those whose free objects hold patterns. Returns the bytes. Slabs are out of the lists while the
 * system is called, so the caller holds the lock of takeovers, which keeps out forks and the destruction of caches;
 * no other lock is held.
 */
size_t slab_holes(struct slab_cache *cache);

/* Bytes that all calls gave back. */
uint64_t slab_hole_bytes(void);

#endif
