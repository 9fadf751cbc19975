/*
 * The record file of this process; see sheaf/record.h. record_fork_child() and record_end() do nothing without a
 * record.
 */
#ifndef SHEAF_PRELOAD_RECORD_H
#define SHEAF_PRELOAD_RECORD_H

/* Create the file and start to count in it. Must be called after malloc_init(), with sheaf_config.record set. */
void record_start(void);

/* In the child of a fork: create a separate file and count from zero. Leaves errno alone. */
void record_fork_child(void);

/* Bring everything up to date and mark the record as ended. */
void record_end(void);

#endif
