/*
 * bench-columns: benchmarks that compare the allocator with itself, with and without sheaves, or with the work that
 * is not the allocator's. The program contains the allocator, to configure it before its first allocation and to read
 * its counters.
 */
#ifndef BENCH_COLUMNS_H
#define BENCH_COLUMNS_H

#include "../measure.h"
#include "cache/kmem_cache.h"

struct setup {
    const char *test;
    uint64_t ops;      /* objects, or MiB in `fresh` */
    unsigned capacity; /* of sheaves, if `fixed`; 0: no sheaves */
    bool fixed, shuffled, random, untouched, plain;
    unsigned batch, pairs, size, rounds;
};
extern struct setup setup;

/* Each prints one line of JSON. */
void run_batch(void);
void run_cross(void);
void run_fresh(void);

/* The cache under test. */
struct kmem_cache *cache_under_test(unsigned size);

/* The share of allocations and frees by the fast path. No other thread may use the cache meanwhile. */
double fast_share(const struct kmem_cache *cache);

#endif
