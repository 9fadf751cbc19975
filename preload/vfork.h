/*
 * Children that stand in for the thread that made them: those of vfork(), and of clone() with CLONE_VM and
 * CLONE_VFORK. Such a child uses its parent's memory, thread pointer and locks while the parent is suspended.
 */
#ifndef SHEAF_PRELOAD_VFORK_H
#define SHEAF_PRELOAD_VFORK_H

#include "cache/slot/slot.h"

#include <sys/types.h>

/* What child and parent get from before the child was made. In two registers: assembly passes it on. */
struct vfork_parent {
    uint64_t mask; /* signals that were blocked */
    uint64_t name; /* lock_self() */
};

/* To be called before the child is made: blocks all signals. */
struct vfork_parent vfork_prepare(void);

/*
 * To be called with the result of the system call, first in the child and then in the parent. Makes rseq sections
 * safe and sets the mask. Returns the child's number, 0 in the child, or -1 with errno.
 */
pid_t vfork_returned(long result, struct vfork_parent parent);

/*
 * The calling thread is foreign from now on (platform/os/foreign.h). To be called before it allocates. `parent` as
 * for foreign_add().
 */
void foreign_enter(uint64_t parent);

#endif
