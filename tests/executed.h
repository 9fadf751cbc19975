/*
 * Cases that run in a new execution of the program, for tests of options and of reports: a program's judge() gets
 * what the case wrote to standard error.
 */
#ifndef SHEAF_TESTS_EXECUTED_H
#define SHEAF_TESTS_EXECUTED_H

#define RUN_CASE run_executed
#include "cases.h"

#include <sys/resource.h>

struct outcome {
    int status;
    void *told; /* the last pointer that the case passed to tell() */
    char text[1 << 18];
};

enum { TOLD_FD = 198 };

/* Passes a pointer to judge(). Returns it. */
__attribute__((unused)) static void *tell(void *p)
{
    must(write(TOLD_FD, &p, sizeof(p)) == sizeof(p));
    return p;
}

/* Reads to the end. Of more text than fits the middle is left out. */
static void read_all(int from, char *text, size_t most)
{
    size_t n = 0;
    ssize_t got;
    while ((got = read(from, text + n, most - 1 - n)) > 0 || (got < 0 && errno == EINTR)) {
        n += got > 0 ? (size_t)got : 0;
        if (n > most - 4096) {
            memmove(text + most / 4, text + most / 2, n - most / 2);
            n -= most / 4;
        }
    }
    text[n] = 0;
    close(from);
}

/* Runs the case with settings, one "NAME=VALUE" on each line. */
static void execute_case(const struct test_case *c, const char *settings, struct outcome *outcome)
{
    int err[2], told[2];
    must(!pipe(err) && !pipe(told));
    pid_t pid = fork();
    if (pid == 0) {
        static const struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        dup2(err[1], 2);
        dup2(told[1], TOLD_FD);
        for (int i = 0; i < 2; i++) {
            close(err[i]);
            close(told[i]);
        }
        for (char *setting = strtok(strdup(settings), "\n"); setting; setting = strtok(NULL, "\n"))
            putenv(setting);
        execute_part(c->name);
    }
    close(err[1]);
    close(told[1]);
    read_all(err[0], outcome->text, sizeof(outcome->text));
    outcome->told = NULL;
    while (read(told[0], &outcome->told, sizeof(outcome->told)) > 0) {
    }
    close(told[0]);
    must(waitpid(pid, &outcome->status, 0) == pid);
}

/* Prints the line of a case and, if something is wrong, its outcome. Returns whether it failed. */
static int print_outcome(int number, const struct test_case *c, const char *wrong, struct outcome *outcome)
{
    for (char *end = outcome->text; (end = strchr(end, '\n'));) /* a TAP comment is one line */
        *end = '|';
    if (print_case(number, c, wrong))
        printf("# status %x, pointer %p, standard error: %s\n", (unsigned)outcome->status, outcome->told,
               outcome->text);
    return wrong != NULL;
}

#endif
