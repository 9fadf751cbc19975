/*
 * Freed memory that waits before it is used again: SHEAF_HARDEN=quarantine=BYTES.
 *
 * One ring for the process, first in, first out, bounded by its bytes and by its entries. Each entry is one word:
 * who exchanges it for 0 owns what it names; no lock, so that all of this works in signal handlers. Objects of slabs
 * are filled with a pattern while they wait and looked at when they leave, so that a write after free is seen; large
 * blocks are closed, so that any access faults. An object that waits is neither in use nor free: kmem_cache.waiting
 * counts it (see cache_check()).
 *
 * Fork: the child has its copy of the ring; what another thread had in hand stays out of it for ever.
 */
#ifndef SHEAF_FEATURE_QUARANTINE_H
#define SHEAF_FEATURE_QUARANTINE_H

#include "cache/kmem_cache.h"

/* Once, with the bound. Without memory for the ring there is no quarantine. */
void quarantine_init(size_t bytes);

/* Let a raw object wait, filled with the pattern unless `keep`. False: nothing was done, it is free now. */
bool quarantine_object(struct kmem_cache *cache, void *object, bool keep);

/* Whether a large block of so many bytes may wait. */
bool quarantine_takes(size_t bytes);

/* Let it wait, closed; `release` is called when its time has come. */
void quarantine_large(void *p, size_t bytes, void (*release)(void *p));

/* Whether anything waits. */
bool quarantine_waits(void);

/* Let go what waits: of one cache, or all (NULL). */
void quarantine_drain(struct kmem_cache *cache);

/* Large blocks that wait, which the region counts as in use. */
extern hidden _Atomic uint64_t quarantine_large_blocks, quarantine_large_bytes;

#endif
