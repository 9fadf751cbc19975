/* Budgets follow the memory that the process may have, where a control group or RLIMIT_AS allows it less than the machine has. */
#ifndef SHEAF_CACHE_LIMIT_H
#define SHEAF_CACHE_LIMIT_H

#include <stddef.h>
#include <stdint.h>

/*
 * Look once, when the heap has grown to `units` of which that is worth it: a small program never asks. Called in slow
 * paths, without a lock.
 */
void limit_look(uint64_t units);

/* Budgets for a process that may have so many bytes; those that the user chose stay. */
void limit_apply(size_t bytes);

#endif
