/* Runs named cases, each in its own child process, and prints TAP. An argument selects the case of that name. */
#ifndef SHEAF_TESTS_CASES_H
#define SHEAF_TESTS_CASES_H

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

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

struct test_case {
    const char *name;
    void (*run)(void);
};

/* Most cases take less than one second. A busy machine may need thirty times as long. */
enum { CASE_SECONDS = 300, CASE_SKIPPED = 77 }; /* a case that cannot run here calls _exit(CASE_SKIPPED) */

__attribute__((unused)) static int run_cases(int argc, char **argv, const struct test_case *cases, size_t count)
{
    int failed = 0, n = 0;
    printf("1..%zu\n", argc > 1 ? 1 : count);
    for (size_t i = 0; i < count; i++) {
        if (argc > 1 && strcmp(argv[1], cases[i].name) != 0)
            continue;
        fflush(stdout);
        pid_t pid = fork();
        if (pid == 0) {
            alarm(CASE_SECONDS);
            cases[i].run();
            _exit(0);
        }
        int status = -1;
        waitpid(pid, &status, 0);
        int skipped = WIFEXITED(status) && WEXITSTATUS(status) == CASE_SKIPPED;
        int bad = status != 0 && !skipped;
        failed += bad;
        printf("%s %d %s%s\n", bad ? "not ok" : "ok", ++n, cases[i].name, skipped ? " # SKIP not possible here" : "");
        if (WIFSIGNALED(status))
            printf("# ended by signal %d\n", WTERMSIG(status));
    }
    if (!n)
        printf("Bail out! no case %s\n", argv[1]);
    return failed || !n;
}

#endif
