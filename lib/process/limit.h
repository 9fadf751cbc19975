/* Budgets for a process that a control group or RLIMIT_AS allows less memory than the machine has. */
#ifndef SHEAF_PROCESS_LIMIT_H
#define SHEAF_PROCESS_LIMIT_H

#include "platform/os/compiler.h"

/*
 * Read the limit and apply it, once. Does nothing unless the start found it allowed: it is not if the helper thread
 * was switched off then, as it is in sandboxes that kill the process for unknown system calls. Called in slow paths,
 * without a lock, when the heap has grown to LIMIT_POLL_FROM slices, so that a small program does not even touch the
 * code.
 */
#define LIMIT_POLL_FROM 256u /* 16 MiB */
extern hidden bool limit_allowed;
void limit_poll(void);

/* Lower the budgets for a process with a limit of `bytes`. Values that the user chose stay. */
void limit_apply(size_t bytes);

#endif
