/*
 * Random numbers for hardening, sampling and injected failures. The kernel is not asked for a seed before the first
 * use. Safe in signal handlers and without locks.
 */
#ifndef SHEAF_OS_RANDOM_H
#define SHEAF_OS_RANDOM_H

#include "platform/os/compiler.h"

/* A number from the kernel that outsiders cannot predict. */
uint64_t random_seed(void);

/* The process's own number from random_seed(), which is not 0. */
extern hidden _Atomic uint64_t random_process_key;
uint64_t random_make_key(void);
static inline uint64_t random_key(void)
{
    uint64_t key = atomic_load_explicit(&random_process_key, memory_order_relaxed);
    return likely(key) ? key : random_make_key();
}

/* The next number of a sequence that depends on random_key(). */
uint64_t random_next(void);

/* Called in the child of a fork, which gets a key of its own instead of its parent's sequence. */
void random_forked(void);

/*
 * Mixes all bits of n (the finalizer of SplitMix; Steele, Lea and Flood, 2014). Consecutive n give a pseudo-random
 * sequence.
 */
static inline uint64_t random_mix(uint64_t n)
{
    n *= 0x9e3779b97f4a7c15ull;
    n = (n ^ (n >> 30)) * 0xbf58476d1ce4e5b9ull;
    n = (n ^ (n >> 27)) * 0x94d049bb133111ebull;
    return n ^ (n >> 31);
}

#endif
