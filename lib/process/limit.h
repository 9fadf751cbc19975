/* Budgets follow the memory that the process may have, where a control group or RLIMIT_AS allows it less than the
 * machine has. */
#ifndef SHEAF_PROCESS_LIMIT_H
#define SHEAF_PROCESS_LIMIT_H

#include <stddef.h>

/*
 * Look, once; not where the helper thread is switched off, which is for sandboxes that kill at a system call they do
 * not know. Called in slow paths, without a lock, when the heap has grown to so many units: a small program never
 * asks, nor touches the code.
 */
#define LIMIT_LOOK_FROM 256u /* 16 MiB */
void limit_look(void);

/* Budgets for a process that may have so many bytes; those that the user chose stay. */
void limit_apply(size_t bytes);

#endif
