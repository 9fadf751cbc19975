/* For cases that need limits or options from the start of a process: their second half runs in a new execution. */
#ifndef SHEAF_TESTS_AGAIN_H
#define SHEAF_TESTS_AGAIN_H

#include "../cases.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/resource.h>

/*
 * Executes the program again for the case's second half, `half`. Does not return. If `data` is not 0, it is the
 * limit RLIMIT_DATA in bytes; under such a limit the reservation becomes writable in steps.
 */
static void start_again(const char *half, rlim_t data)
{
    struct rlimit limit = {data, data};
    must(!data || setrlimit(RLIMIT_DATA, &limit) == 0);
    alarm(CASE_SECONDS);
    execl("/proc/self/exe", "again", "--again", half, (char *)NULL);
    must(!"executed again");
}

/* For main(): runs the half that the arguments name. Returns 0 if they name none. */
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
