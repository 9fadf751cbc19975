/*
 * Chance: which allocations are sampled. Every byte of an allocation starts a sample with the same small probability,
 * so an allocation of `size` bytes is sampled with probability 1 - exp(-size / mean), independently of all others
 * (Poisson sampling, as in tcmalloc). The mean is SHEAF_PROFILE times 1, 8, 64 or 512: each slot takes the next
 * larger one while samples take more of its time than SHEAF_PROFILE_COST allows, and returns to the smaller one
 * afterwards. That choice depends on the past alone, so weights of 1/probability keep all sums unbiased.
 *
 * Everything here is safe in signal handlers and without locks.
 */
#ifndef SHEAF_PROFILE_CHANCE_H
#define SHEAF_PROFILE_CHANCE_H

#include "os/compiler.h"

#define CHANCE_MEANS 4 /* their indices have two bits in the account of a slot's ends (cache/stops.h) */

/* Set the mean distance between samples, in bytes. */
void chance_set(uint64_t rate);

/* Draw again where the next sample was drawn already: in the child of a fork, which would share it with its parent.
 */
void chance_forget(void);

/* The probability with which an allocation of `size` bytes is sampled. */
double chance_of(size_t size, unsigned mean);

/* Whether to sample this allocation, which no number of chance_distance() covers. */
bool chance_hit(unsigned slot, size_t size, unsigned mean);

/*
 * The number of allocations of `size` bytes until the next sample: geometrically distributed. At most
 * UINT32_MAX - 1. If it is at least `far`, the result may be `far` instead, which takes less time.
 */
uint32_t chance_distance(unsigned slot, size_t size, unsigned mean, uint32_t far);

/* The same under the condition that it is smaller than `span`, which is at least 1; exact. */
uint32_t chance_distance_below(unsigned slot, size_t size, unsigned mean, uint32_t span);

/* ---- what samples cost ---- */

/* The mean that the slot uses now. */
unsigned chance_mean(unsigned slot);

/* Account for a sample that took so many nanoseconds on the slot. */
void chance_spent(unsigned slot, uint64_t ns);

#endif
