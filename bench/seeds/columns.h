/*
 * bench-columns: the tests of the kernel's slab allocator that compare it with itself, with and without something.
 * The program holds the allocator, to choose how it is set up before its first allocation and to read its counters.
 */
#ifndef BENCH_COLUMNS_H
#define BENCH_COLUMNS_H

#include "../measure.h"
#include "cache/kmem_cache.h"

struct setup {
    const char *test;
    uint64_t ops;      /* objects, or MiB in `fresh` */
    unsigned capacity; /* of sheaves; with `fixed`, 0 is none */
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

/* Objects that the fast path took and gave, of all; the program is quiet. */
double fast_share(const struct kmem_cache *cache);

#endif
