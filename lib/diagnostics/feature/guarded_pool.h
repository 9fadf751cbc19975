/*
 * The guarded pool (SHEAF_HARDEN=sample=N): about one in N of malloc's small requests gets a page of its own between
 * closed pages, so that an access beyond the end, before the start or after free faults at once and is reported
 * with the stacks of the allocation and the free. After GWP-ASan (Chromium, LLVM), with a fixed number of slots,
 * which are not those of CPUs.
 *
 * The fast paths know nothing of it. Requests are counted in the slow path and, for fast paths, when a
 * word's counts are folded. When N have passed, the next request in the slow path is sampled: one that finds its
 * sheaf empty or its count full. A size class takes the slow path after at most min(N, 4096) requests on a CPU, so
 * even a rarely used one is sampled.
 *
 * Slots are claimed by compare-and-swap of their state, in turn, so that freed pages stay closed as long as the
 * pool allows. There is no lock: everything here works in signal handlers. A forked child has a copy of the pool;
 * a slot that another thread was filling at the fork is lost to it.
 */
#ifndef SHEAF_FEATURE_GUARDED_POOL_H
#define SHEAF_FEATURE_GUARDED_POOL_H

#include "platform/os/compiler.h"

#define POOL_SLOTS 256 /* live and freed ones; while all are live, nothing more is sampled */

/* Set up the pool, once, to sample one request of `n`. `all_come_by`: every request of a sampled cache takes the
 * slow path. If there is no memory for the pool, nothing is sampled. */
void pool_init(uint32_t n, bool all_come_by);

/* Count requests that fast paths have served. */
void pool_passed(uint64_t requests);

/* Count a request in the slow path. Returns the object if it is sampled, else NULL; the caller then serves the
 * request. */
void *pool_alloc(size_t n, size_t align);

/* Whether p lies in the pool. */
extern hidden uintptr_t pool_start, pool_bytes;
static inline bool pool_has(const void *p)
{
    return (uintptr_t)p - pool_start < pool_bytes;
}

/* The size of the live sample that begins at p. Any other address in the pool is reported as misuse. */
size_t pool_size(const void *p);

/* Free the live sample that begins at p. Any other address in the pool is reported as misuse. */
void pool_free(void *p);

/* Report what is known of an address in the pool that could not be accessed. */
void pool_report(const void *address);

/* Visit the live samples, for the leak scan; `stack` is that of the allocation, in the depot. */
void pool_each(void (*visit)(const void *object, size_t size, uint32_t stack, void *with), void *with);

/* Bytes in live samples. */
uint64_t pool_live_bytes(void);

#endif
