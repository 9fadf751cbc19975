/* The memory limit of the control group that the process is in. */
#ifndef SHEAF_OS_CGROUP_H
#define SHEAF_OS_CGROUP_H

#include <stddef.h>

/*
 * Bytes: the least of the limits from the process's group up to the root that can be seen, of either version of
 * control groups; SIZE_MAX when there is none, or when it cannot be told. Reads a few small files without allocating;
 * none in a process that has installed a seccomp filter, which might not stand that. Leaves errno alone; safe in
 * signal handlers, but not for two threads at once.
 */
size_t cgroup_limit(void);

/* What stands before all paths: nothing, but in tests. */
extern const char *cgroup_root;

#endif
