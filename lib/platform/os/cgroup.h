/* The memory limit of the control group that the process belongs to. */
#ifndef SHEAF_OS_CGROUP_H
#define SHEAF_OS_CGROUP_H

#include "platform/os/compiler.h"
#include "platform/os/syscall.h"

#include <sys/prctl.h>

/*
 * The seccomp filter of this thread: 0 for none. With a filter it is CGROUP_FILTER, plus CGROUP_NO_NEW_PRIVS if that
 * is set, which a program without privileges must do before it installs a filter of its own. Negative if the system
 * does not say.
 */
#define CGROUP_FILTER       2 /* SECCOMP_MODE_FILTER */
#define CGROUP_NO_NEW_PRIVS 1
static inline long cgroup_sandbox(void)
{
    long mode = sys_call(SYS_prctl, PR_GET_SECCOMP, 0, 0, 0, 0, 0);
    return likely(mode != CGROUP_FILTER) ? mode : mode | sys_call(SYS_prctl, PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0, 0);
}

/* cgroup_sandbox() at the start of the process, or 0. The dynamic loader has opened files under such a filter. */
extern hidden long cgroup_sandbox_at_start;

/*
 * Whether this process may open files: not under a seccomp filter that was not there at its start, because the filter
 * may kill the process for it. cgroup_sandbox_at_start must have been set.
 */
bool cgroup_may_open(void);

/*
 * Returns the smallest memory limit, in bytes, of the process's group and its visible ancestors, for both versions
 * of control groups; SIZE_MAX when there is no limit or none can be read. Reads a few small files of /proc and
 * /sys without allocating, and none unless cgroup_may_open().
 * Leaves errno alone. Safe in signal handlers, but two threads must not call it at once.
 */
size_t cgroup_limit(void);

/* Prefix of all paths; only tests set it. */
extern const char *cgroup_root;

#endif
