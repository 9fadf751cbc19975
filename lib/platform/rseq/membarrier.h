/* The memory barrier that restarts every rseq section of this process that is running on another CPU. */
#ifndef SHEAF_RSEQ_MEMBARRIER_H
#define SHEAF_RSEQ_MEMBARRIER_H

#include "platform/os/compiler.h"

/*
 * Returns true when no rseq section that began before the call is still running; what those sections stored is
 * then visible. Returns false where the kernel (before 5.10) or a sandbox does not offer the barrier; nothing is
 * guaranteed then.
 */
bool membarrier_rseq(void);

#endif
