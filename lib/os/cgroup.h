/* The memory limit of the control group that the process belongs to. */
#ifndef SHEAF_OS_CGROUP_H
#define SHEAF_OS_CGROUP_H

#include <stddef.h>

/*
 * Returns the smallest memory limit, in bytes, of the process's group and its visible ancestors, for both versions
 * of control groups; SIZE_MAX when there is no limit or none can be read. Reads a few small files of /proc and
 * /sys without allocating; reads none in a process under a seccomp filter, which may forbid those system calls.
 * Leaves errno alone. Safe in signal handlers, but two threads must not call it at once.
 */
size_t cgroup_limit(void);

/* Prefix of all paths; only tests set it. */
extern const char *cgroup_root;

#endif
