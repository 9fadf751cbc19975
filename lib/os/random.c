#include "os/random.h"
#include "os/syscall.h"

#include <linux/random.h>
#include <time.h>

static _Atomic uint64_t state;
static _Atomic uint64_t key; /* 0 until seeded */

/*
 * Early in the boot of a machine the kernel has no random numbers yet; addresses and the time must then suffice.
 */
uint64_t random_seed(void)
{
    uint64_t seed = 0;
    if (sys_call3(SYS_getrandom, (long)&seed, sizeof(seed), GRND_NONBLOCK) == sizeof(seed))
        return seed;
    struct timespec now = {0};
    sys_call3(SYS_clock_gettime, CLOCK_MONOTONIC, (long)&now, 0);
    return random_mix((uintptr_t)&seed ^ random_mix((uintptr_t)&state) ^ (uint64_t)now.tv_nsec);
}

static noinline_cold uint64_t make_key(void)
{
    uint64_t none = 0, k = random_seed() | 1;
    return atomic_compare_exchange_strong(&key, &none, k) ? k : none;
}

uint64_t random_key(void)
{
    uint64_t k = atomic_load_explicit(&key, memory_order_relaxed);
    return likely(k) ? k : make_key();
}

uint64_t random_next(void)
{
    uint64_t k = random_key();
    return random_mix(random_mix(atomic_fetch_add_explicit(&state, 1, memory_order_relaxed) ^ k) + k);
}

void random_forked(void)
{
    if (atomic_load_explicit(&key, memory_order_relaxed)) /* a write would copy the page */
        atomic_store_explicit(&key, 0, memory_order_relaxed);
}
