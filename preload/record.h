/*
 * The record file of this process; see sheaf/record.h. record_fork_child() and record_end() do nothing without a
 * record.
 */
#ifndef SHEAF_PRELOAD_RECORD_H
#define SHEAF_PRELOAD_RECORD_H

#include <stdbool.h>
#include <stddef.h>

/* Create the file and start to count in it. Must be called after malloc_init(), with sheaf_config.record set. */
void record_start(void);

/* In the child of a fork: create a separate file and count from zero. Leaves errno alone. */
void record_fork_child(void);

/*
 * Make the file of this process, and those of forked children, cover the profile area (sheaf/profile.h) from the
 * start. Must be called before record_start(). Where the limit of file size or the file system does not allow it, the
 * file ends before the area.
 */
void record_extend_for_profile(void);

/*
 * The profile area, and its size in *bytes. Returns NULL while the file does not cover it (a client has to extend the
 * file), and where there is no record, no address space or no room in the file system. The first page of the area is
 * confirmed; vm_populate() (platform/os/vm.h) must confirm each other part before it is touched for the first time,
 * because an access that the file system has no room for raises SIGBUS. Makes system calls. Any context. In a forked
 * child the area lies at the same address but in another file, so the child must call this function again.
 */
void *record_profile_area(size_t *bytes);

/*
 * Whether this process has a record of its own. The child of a bare clone(), which runs no handlers, gets its record
 * here. No lock is held but that of remote drains.
 */
bool record_is_ours(void);

/* Bring everything up to date and mark the record as ended. */
void record_end(void);

#endif
