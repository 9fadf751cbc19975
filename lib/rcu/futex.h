/* Waiting for a word to change. These functions leave errno alone. */
#ifndef SHEAF_RCU_FUTEX_H
#define SHEAF_RCU_FUTEX_H

#include "platform/os/syscall.h"

#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

/*
 * Waits while the word equals `seen`, at most `ms` milliseconds; without limit if `ms` is negative. May return
 * early.
 */
static inline void futex_wait(_Atomic uint32_t *word, uint32_t seen, int ms)
{
    struct timespec timeout = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    sys_call(SYS_futex, (long)word, FUTEX_WAIT_PRIVATE, (long)seen, ms < 0 ? 0 : (long)&timeout, 0, 0);
}

static inline void futex_wake(_Atomic uint32_t *word)
{
    sys_call3(SYS_futex, (long)word, FUTEX_WAKE_PRIVATE, INT_MAX);
}

#endif
