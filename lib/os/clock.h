/* Time for decay: coarse and cheap (no system call). */
#ifndef SHEAF_OS_CLOCK_H
#define SHEAF_OS_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Milliseconds, monotonic; wraps after 49 days, so compare differences. */
static inline uint32_t clock_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint32_t)((uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000);
}

#endif
