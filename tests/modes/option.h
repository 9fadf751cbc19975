/*
 * Runs each case in a new execution of the program with one of Sheaf's options set, and checks how it ends and
 * what it writes to standard error. Prints TAP. An argument selects the case of that name.
 */
#ifndef SHEAF_TESTS_OPTION_H
#define SHEAF_TESTS_OPTION_H

#include "../cases.h"

#include <stdlib.h>

struct option_case {
    const char *name;
    const char *setting; /* "SHEAF_NAME=VALUE" */
    void (*run)(void);
    int signal;          /* the signal that must end it; 0: the case must return */
    const char *said[3]; /* parts of its standard error, in order; if the first is NULL, it must be empty */
};

/* A bad value of an option is reported, and `run` finds the default in effect. */
#define BAD_VALUE(name, option, value, run, why)                                                                     \
    {                                                                                                                \
        name, option "=" value, run, 0,                                                                              \
        {                                                                                                            \
            "sheaf: " option "=" value ": ", why, "the default is used\n"                                            \
        }                                                                                                            \
    }

static const char *judge_case(const struct option_case *c, int status, const char *text)
{
    if (c->signal ? !WIFSIGNALED(status) || WTERMSIG(status) != c->signal : status != 0)
        return "it ended with another status";
    if (!c->said[0])
        return *text ? "standard error is not empty" : NULL;
    for (int i = 0; i < 3 && c->said[i]; i++) {
        text = strstr(text, c->said[i]);
        if (!text)
            return c->said[i];
        text += strlen(c->said[i]);
    }
    return NULL;
}

static int run_case(int number, const struct option_case *c)
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
        execl("/proc/self/exe", "modes", "--inside", c->name, (char *)NULL);
        _exit(126);
    }
    close(err[1]);
    while (n < sizeof(text) - 1 && (got = read(err[0], text + n, sizeof(text) - 1 - n)) > 0)
        n += (size_t)got;
    text[n] = 0;
    close(err[0]);
    must(waitpid(pid, &status, 0) == pid);
    const char *wrong = judge_case(c, status, text);
    printf("%s %d %s\n", wrong ? "not ok" : "ok", number, c->name);
    for (char *end = text; (end = strchr(end, '\n'));) /* a TAP comment is one line */
        *end = '|';
    if (wrong)
        printf("# wrong or missing: %s; status %x; standard error: %s\n", wrong, (unsigned)status, text);
    return wrong != NULL;
}

static int run_option_cases(int argc, char **argv, const struct option_case *cases, size_t count)
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
            failed += run_case(++n, &cases[i]);
    if (!n)
        printf("Bail out! no case %s\n", argv[1]);
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
