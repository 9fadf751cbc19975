/*
 * The sampler: which allocations are sampled. Requests of at least the rate are always sampled, but for objects of a
 * class while its pace is slower (pace.h). Below that, every byte of an allocation starts a sample with the same
 * small probability, so an allocation of `size` bytes is sampled with probability 1 - exp(-size / mean),
 * independently of all others (Poisson sampling, as in tcmalloc). `slower` is the exponent of two by which a pace
 * makes the mean larger.
 *
 * Everything here is safe in signal handlers and without locks.
 */
#ifndef SHEAF_PROFILE_SAMPLER_H
#define SHEAF_PROFILE_SAMPLER_H

#include "platform/os/compiler.h"

/* Set the mean distance between samples, in bytes. Returns false if there is no memory. */
bool sampler_start(uint64_t rate);

/* Draw again where the next sample was drawn already: in the child of a fork, which would share it with its parent.
 */
void sampler_forget(void);

/* Whether a request of n bytes is always sampled. */
bool sampler_always(size_t n);

/* The probability with which an allocation of `size` bytes is sampled. */
double sampler_probability(size_t size, unsigned slower);

/*
 * Whether to sample this allocation, which no number of sampler_distance() covers: the bytes until the next sample
 * are drawn once and counted down. sampler_draw() draws them, also again, and sampler_slower() is with which
 * exponent.
 */
bool sampler_hit(unsigned slot, size_t size);
void sampler_draw(unsigned slot, unsigned slower);
unsigned sampler_slower(unsigned slot);

/* Whether so many bytes reach the next MiB of those that were drawn: a moment to look at the clock. */
bool sampler_tick(unsigned slot, size_t size);

/* The number of allocations of `size` bytes before the next sample: geometrically distributed. At most
 * UINT32_MAX - 2. */
uint32_t sampler_distance(unsigned slot, size_t size, unsigned slower);

/* A random number below 2^32. */
uint32_t sampler_number(unsigned slot);

#endif
