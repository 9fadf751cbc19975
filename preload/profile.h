/* The profile area of this process's record; see sheaf/profile.h. */
#ifndef SHEAF_PRELOAD_PROFILE_H
#define SHEAF_PRELOAD_PROFILE_H

#include "sheaf/control.h"

/* Let samples be kept in the record that was just started, if there is one and it has room. */
void profile_record_start(void);

/* The same in the child of a fork, which has a new record. Samples that the parent took, and that are live, are in
 * it. */
void profile_record_fork_child(void);

/* Count what there is in all: at the end of the record, and for a client. */
void profile_count(void);

/* Switch sampling on, with one sample for each `rate` bytes on average, or off (0). Returns the answer to
 * SHEAF_PROFILE, and stores the reason for SHEAF_REFUSED in *why. No lock may be held. */
enum sheaf_status profile_request(uint64_t rate, enum sheaf_refusal *why);

#endif
