/* The fence that restarts every rseq section of this process that is under way on another CPU. */
#ifndef SHEAF_OS_MEMBARRIER_H
#define SHEAF_OS_MEMBARRIER_H

#include "os/compiler.h"

/*
 * After it returned true, no rseq section that began before is still running, and what it stored is visible.
 * False: the kernel (before 5.10) or a sandbox does not offer it; nothing is known then.
 */
bool membarrier_rseq(void);

#endif
