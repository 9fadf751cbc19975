/*
 * Quarantine: freed memory waits before it is used again (SHEAF_HARDEN=quarantine=BYTES).
 *
 * There is one ring for the process, first in, first out, bounded by bytes and by entries. Each entry is one word;
 * the thread that exchanges it for 0 owns the memory. There is no lock, so all of this works in signal handlers.
 * Objects of slabs are filled with a pattern while they wait and are checked when they leave, so that a write
 * after free is detected. Large blocks are closed, so that any access faults. An object that waits is neither in
 * use nor free: kmem_cache.waiting counts it (see cache_check() in process/census.h).
 *
 * A forked child has a copy of the ring. Entries that other threads had removed at the fork are lost to the child.
 */
#ifndef SHEAF_FEATURE_QUARANTINE_H
#define SHEAF_FEATURE_QUARANTINE_H

#include "cache/kmem_cache.h"

/* Set up the ring, once. `bytes` is the bound. If there is no memory for the ring, there is no quarantine. */
void quarantine_init(size_t bytes);

/* Let a raw object wait, filled with the pattern unless `keep`. Returns false, with nothing done, if it cannot
 * wait; the caller then frees it. A double free that is found is reported. */
bool quarantine_object(struct kmem_cache *cache, void *object, bool keep);

/* Whether a large block of so many bytes may wait. */
bool quarantine_takes(size_t bytes);

/* Let a large block wait, which the caller has closed. `release` is called to free it; it must be the same for all
 * blocks. */
void quarantine_large(void *p, size_t bytes, void (*release)(void *p));

/* Whether anything waits. */
bool quarantine_waits(void);

/* Release what waits: objects of one cache, or everything with NULL. */
void quarantine_drain(struct kmem_cache *cache);

/* Visit the objects and blocks that wait, for the leak scan. */
void quarantine_each(void (*visit)(const void *p, void *with), void *with);

/* Large blocks that wait, which the region counts as in use. */
extern hidden _Atomic uint64_t quarantine_large_blocks, quarantine_large_bytes;

#endif
