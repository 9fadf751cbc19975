/*
 * Sampled allocations: some of malloc's small requests get a page of their own between closed ones, so that a write
 * or read beyond the end, before the start or after free faults at once, and is told with who allocated and who
 * freed. SHEAF_HARDEN=sample=N, about one of N; after GWP-ASan (Chromium, LLVM: a fixed pool of slots).
 *
 * Which are taken: the fast paths know nothing of it. Requests are counted where slots' counts are folded and in the
 * slow path, and when N have passed, the next request that comes by the slow path is taken. That is at the latest
 * after min(N, 4096) requests of one size class on one CPU, but always the one that finds its sheaf empty or its
 * count full; a size class that is asked for rarely still has its turn.
 *
 * Slots are claimed by compare-and-swap of their state, in turn, so that what was freed stays closed as long as the
 * pool allows. No lock: all of it works in signal handlers. Fork: the child has its copy; a slot that another thread
 * was filling is lost to it.
 */
#ifndef SHEAF_FEATURE_SAMPLE_H
#define SHEAF_FEATURE_SAMPLE_H

#include "os/compiler.h"

#define SAMPLE_SLOTS 256 /* live and freed ones; when all are live, nothing more is sampled */

/*
 * Once, for one request of `n`. `all_come_by`: there is no fast path that requests are served by unseen. Without
 * memory for the pool nothing is sampled.
 */
void sample_init(uint32_t n, bool all_come_by);

/* That many requests were served by a fast path. */
void sample_passed(uint64_t requests);

/* A request in the slow path; NULL: it is not taken. */
void *sample_alloc(size_t n, size_t align);

/* Whether p lies in the pool. */
extern hidden uintptr_t sample_start, sample_bytes;
static inline bool sample_has(const void *p)
{
    return (uintptr_t)p - sample_start < sample_bytes;
}

/* Bytes of the live sample that begins at p; anything else is reported. */
size_t sample_size(const void *p);

/* Free it; anything but a live sample's start is reported. */
void sample_free(void *p);

/* What is known of an address in the pool that could not be accessed. */
void sample_tell(const void *address);

/* Bytes in live samples. */
uint64_t sample_live(void);

#endif
