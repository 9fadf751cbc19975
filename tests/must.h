/* Checks for tests, and the headers of libc that nearly all of them need. */
#ifndef SHEAF_TESTS_MUST_H
#define SHEAF_TESTS_MUST_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Most cases take less than one second. A busy machine may need thirty times as long. */
enum { CASE_SECONDS = 300, CASE_SKIPPED = 77 }; /* a case that cannot run here calls _exit(CASE_SKIPPED) */

/* Fails the case. Allocates nothing, so it works when memory is exhausted; any thread may use it. */
#define must(x)                                                                                                      \
    do {                                                                                                             \
        if (!(x)) {                                                                                                  \
            dprintf(2, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #x, errno);                                     \
            _exit(1);                                                                                                \
        }                                                                                                            \
    } while (0)

/* Waits for a child, which must have exited with 0. */
__attribute__((unused)) static void must_succeed(pid_t child)
{
    int status = -1;
    pid_t got;
    while ((got = waitpid(child, &status, 0)) < 0 && errno == EINTR) {
    }
    must(got == child && status == 0);
}

#endif
