/* Facts about the processors that are available without opening a file. */
#ifndef SHEAF_OS_CPU_H
#define SHEAF_OS_CPU_H

#include "platform/os/compiler.h"

/*
 * *possible is an upper bound of CPU numbers, including CPUs that may come online later; *allowed is the number of
 * CPUs that this process may run on now. Both are at least 1.
 */
void cpu_count(unsigned *possible, unsigned *allowed);

/* The number of allowed CPUs that cpu_count() found at the start. */
extern hidden unsigned cpu_allowed_count;

/* The CPU that the calling thread runs on; a hint, because the thread may migrate at any time. */
unsigned cpu_current(void);

/* A number shared by exactly the CPUs that share the current CPU's last-level cache; 0 where that is unknown. */
unsigned cpu_llc(void);

#endif
