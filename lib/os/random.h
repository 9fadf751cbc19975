/*
 * Random numbers for hardening and for injected failures. The system is asked for a seed only when somebody wants
 * one. A forked child goes on from its parent's state. Safe in signal handlers: one atomic addition.
 */
#ifndef SHEAF_OS_RANDOM_H
#define SHEAF_OS_RANDOM_H

#include "os/compiler.h"

/* A number that nobody outside can guess, from the system. */
uint64_t random_seed(void);

/* The next one of a sequence that was seeded so. */
uint64_t random_next(void);

/* All bits of n mixed (Steele, Lea, Flood: SplitMix, 2014): a sequence is what the multiples of the constant give. */
static inline uint64_t random_mix(uint64_t n)
{
    n *= 0x9e3779b97f4a7c15ull;
    n = (n ^ (n >> 30)) * 0xbf58476d1ce4e5b9ull;
    n = (n ^ (n >> 27)) * 0x94d049bb133111ebull;
    return n ^ (n >> 31);
}

#endif
