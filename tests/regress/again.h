/* Cases that need limits or options from the start of a process: they run in this program, executed again. */
#ifndef SHEAF_TESTS_AGAIN_H
#define SHEAF_TESTS_AGAIN_H

#include "../cases.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/resource.h>

/* The second half of the calling case. `data`: RLIMIT_DATA in bytes, under which the reservation is staged; 0: none.
 */
static void start_again(const char *half, rlim_t data)
{
    struct rlimit limit = {data, data};
    must(!data || setrlimit(RLIMIT_DATA, &limit) == 0);
    alarm(CASE_SECONDS);
    execl("/proc/self/exe", "again", "--again", half, (char *)NULL);
    must(!"executed again");
}

/* For main(): whether that was asked for, and done. */
static int ran_half(int argc, char **argv, const struct test_case *halves, size_t count)
{
    if (argc != 3 || strcmp(argv[1], "--again") != 0)
        return 0;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(argv[2], halves[i].name) == 0) {
            halves[i].run();
            return 1;
        }
    }
    must(!"half known");
    return 1;
}

#endif
