/* The text of a leak report. */
#ifndef SHEAF_LEAK_REPORT_H
#define SHEAF_LEAK_REPORT_H

#include "diagnostics/leak/groups.h"

#define GROUPS_TOLD 50 /* groups that are written to standard error; a file gets all of them */

/*
 * Write the report. The other threads run again: symbols come from dladdr(), which takes the dynamic linker's lock.
 * `running`: threads that could not be stopped.
 */
void report_leaks(const struct groups *groups, uint32_t running);

/*
 * Compose the report of all groups, with addresses instead of symbols, for the process with that number. Takes no
 * lock. Returns its size, 0 if there is no memory; *text stays until leak_unmap_all().
 */
size_t report_compose(const struct groups *groups, uint32_t running, uint32_t process, const char **text);

#endif
