/* The record file of this process; see sheaf/record.h. Every function does nothing when no record was asked for. */
#ifndef SHEAF_PRELOAD_RECORD_H
#define SHEAF_PRELOAD_RECORD_H

/* Begin, after malloc_init(). */
void record_start(void);

/* The child of a fork gets a file of its own, and counts from zero. */
void record_fork_child(void);

/* Bring everything up to date and mark it ended. */
void record_end(void);

#endif
