/*
 * Cases that are run with an option of the allocator's set: in this program, executed again. How each ends and what
 * stands on its standard error is judged from outside. TAP on standard output; with an argument, that case alone.
 */
#ifndef SHEAF_TESTS_TOLD_H
#define SHEAF_TESTS_TOLD_H

#include "../cases.h"

#include <stdlib.h>

struct told_case {
    const char *name;
    const char *setting; /* "SHEAF_NAME=VALUE" */
    void (*run)(void);
    int signal;          /* that ends it; 0: it returns */
    const char *said[3]; /* parts of its standard error, in order; the first NULL: it must say nothing */
};

static const char *told_judge(const struct told_case *c, int status, const char *text)
{
    if (c->signal ? !WIFSIGNALED(status) || WTERMSIG(status) != c->signal : status != 0)
        return "ended otherwise";
    if (!c->said[0])
        return *text ? "said something" : NULL;
    for (int i = 0; i < 3 && c->said[i]; i++) {
        text = strstr(text, c->said[i]);
        if (!text)
            return c->said[i];
        text += strlen(c->said[i]);
    }
    return NULL;
}

static int told_run(int number, const struct told_case *c)
{
    static char text[4096];
    int err[2], status;
    size_t n = 0;
    ssize_t got;
    must(pipe(err) == 0);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(CASE_SECONDS);
        dup2(err[1], 2);
        close(err[1]);
        close(err[0]);
        putenv((char *)(size_t)c->setting);
        execl("/proc/self/exe", "told", "--inside", c->name, (char *)NULL);
        _exit(126);
    }
    close(err[1]);
    while (n < sizeof(text) - 1 && (got = read(err[0], text + n, sizeof(text) - 1 - n)) > 0)
        n += (size_t)got;
    text[n] = 0;
    close(err[0]);
    must(waitpid(pid, &status, 0) == pid);
    const char *wrong = told_judge(c, status, text);
    printf("%s %d %s\n", wrong ? "not ok" : "ok", number, c->name);
    for (char *end = text; (end = strchr(end, '\n'));) /* TAP: one line */
        *end = '|';
    if (wrong)
        printf("# wrong: %s; status %x; it said: %s\n", wrong, (unsigned)status, text);
    return wrong != NULL;
}

static int told_cases(int argc, char **argv, const struct told_case *cases, size_t count)
{
    int failed = 0, n = 0;
    for (size_t i = 0; argc == 3 && i < count; i++)
        if (!strcmp(argv[1], "--inside") && !strcmp(argv[2], cases[i].name)) {
            cases[i].run();
            return 0;
        }
    printf("1..%zu\n", argc > 1 ? 1 : count);
    for (size_t i = 0; i < count; i++)
        if (argc < 2 || !strcmp(argv[1], cases[i].name))
            failed += told_run(++n, &cases[i]);
    if (!n)
        printf("Bail out! no such case\n");
    return failed || !n;
}

__attribute__((unused)) static int all_are(const void *p, size_t n, int value)
{
    for (size_t i = 0; i < n; i++)
        if (((const unsigned char *)p)[i] != value)
            return 0;
    return 1;
}

#endif
