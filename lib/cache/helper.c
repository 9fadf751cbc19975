#define _GNU_SOURCE
#include "cache/decay.h"
#include "cache/kmem_cache.h"
#include "os/thread.h"

#include <errno.h>
#include <time.h>

#define IDLE_ROUNDS 32 /* without anything warm, after which the thread ends; the next slow path starts another */

/*
 * It looks four times in the decay time: a burst's memory, which passes from sheaves and barns to slabs, and from
 * there to the system, is gone within one decay time of the burst's end (72 MiB -> 11 after 1 s).
 */
#define LOOKS 4

static _Atomic int running;

static void *helper(void *unused)
{
    (void)unused;
    uint32_t ms = sheaf_config.decay_ms / LOOKS + 1;
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    for (int idle = 0; idle < IDLE_ROUNDS; idle++) {
        nanosleep(&pause, NULL);
        cache_decay_idle(ms);
        if (region_warm())
            idle = 0;
    }
    atomic_store(&running, 0);
    return NULL;
}

/* pthread_create() calls malloc, which may come here again: the flag is set first. */
void helper_arm(void)
{
    int no = 0;
    if (!atomic_compare_exchange_strong(&running, &no, 1))
        return;
    int saved = errno;
    if (!thread_start(helper, 64 << 10))
        atomic_store(&running, 0);
    errno = saved;
}

void helper_forget(void)
{
    if (atomic_load(&running)) /* or its page would be copied */
        atomic_store(&running, 0);
}
