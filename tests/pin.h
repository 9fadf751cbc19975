/* Needs _GNU_SOURCE. */
#ifndef SHEAF_TESTS_PIN_H
#define SHEAF_TESTS_PIN_H

#include <sched.h>
#include <stdbool.h>

/* Binds the calling thread to one CPU. Returns false if it may not run there. */
static inline bool pin(unsigned cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    return sched_setaffinity(0, sizeof(set), &set) == 0;
}

#endif
