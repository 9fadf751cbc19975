/* What the machine's processors are, as far as it can be told without opening a file. */
#ifndef SHEAF_OS_CPU_H
#define SHEAF_OS_CPU_H

#include "os/compiler.h"

/*
 * An upper bound of CPU numbers, those included that may come online later, and the number of CPUs that this process
 * may run on now; both at least 1.
 */
void cpu_count(unsigned *possible, unsigned *allowed);

/* What cpu_count() found at start. */
extern hidden unsigned cpu_allowed_count;

/* The CPU that this thread runs on now: a hint. */
unsigned cpu_current(void);

/* A number that is the same for CPUs which share the last-level cache with the current one; 0 where unknown. */
unsigned cpu_llc(void);

/* Whether memory of more than one NUMA node may be used by this process. */
bool cpu_many_nodes(void);

#endif
