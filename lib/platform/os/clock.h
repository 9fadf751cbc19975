/* Clocks for decay and for the cost of huge pages. */
#ifndef SHEAF_OS_CLOCK_H
#define SHEAF_OS_CLOCK_H

#include <stdint.h>
#include <time.h>

/*
 * Milliseconds of a coarse monotonic clock, without a system call. Wraps after 49 days, so only differences are
 * meaningful.
 */
static inline uint32_t clock_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint32_t)((uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000);
}

/* Nanoseconds of the monotonic clock, without a system call where the kernel has it in the vdso. */
static inline uint64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* CPU time of the calling thread in nanoseconds, so that preemption does not count. Makes a system call. */
static inline uint64_t clock_thread_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#endif
