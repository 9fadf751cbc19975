/* For cases that need a limit from the start of a process. */
#ifndef SHEAF_TESTS_AGAIN_H
#define SHEAF_TESTS_AGAIN_H

#include "../cases.h"

#include <sched.h>
#include <sys/resource.h>

/* Executes the program again for a part, with the limit RLIMIT_DATA (0: none): memory then becomes writable in steps.
 */
static void execute_limited(const char *part, rlim_t data)
{
    struct rlimit limit = {data, data};
    must(!data || setrlimit(RLIMIT_DATA, &limit) == 0);
    execute_part(part);
}

#endif
