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

/* Nanoseconds that the calling thread has run: being preempted does not count. A system call. */
static inline uint64_t clock_thread_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#endif
