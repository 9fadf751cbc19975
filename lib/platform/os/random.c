#include "platform/os/random.h"
#include "platform/os/syscall.h"

#include <linux/random.h>
#include <time.h>

static _Atomic uint64_t state;
_Atomic uint64_t random_process_key; /* 0 until seeded */

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

noinline_cold uint64_t random_make_key(void)
{
    uint64_t none = 0, key = random_seed() | 1;
    return atomic_compare_exchange_strong(&random_process_key, &none, key) ? key : none;
}

uint64_t random_next(void)
{
    uint64_t key = random_key();
    return random_mix(random_mix(atomic_fetch_add_explicit(&state, 1, memory_order_relaxed) ^ key) + key);
}

void random_forked(void)
{
    if (atomic_load_explicit(&random_process_key, memory_order_relaxed)) /* a write would copy the page */
        atomic_store_explicit(&random_process_key, 0, memory_order_relaxed);
}
