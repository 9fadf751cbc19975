/* The text of a leak report. */
#ifndef SHEAF_LEAK_TELL_H
#define SHEAF_LEAK_TELL_H

#include "leak/groups.h"

#define GROUPS_TOLD 50 /* groups that are written to standard error; a file gets all of them */

/*
 * Write the report. The other threads run again: symbols come from dladdr(), which takes the dynamic linker's lock.
 * `running`: threads that could not be stopped.
 */
void tell_report(const struct groups *groups, uint32_t running);

#endif
