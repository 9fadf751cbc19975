/*
 * The main function of a program of cases: runs each in its own child process, and prints TAP. An argument selects
 * the case of that name. CASE(name) begins the function of a case.
 *
 * A case that needs limits or options from the start of a process executes the program again, for one of its parts.
 */
#ifndef SHEAF_TESTS_CASES_H
#define SHEAF_TESTS_CASES_H

#include "must.h"

struct test_case {
    const char *name;
    void (*run)(void);
    const void *expected; /* read by run_case() of other harnesses */
    struct test_case *next;
};

struct test_cases {
    struct test_case *first, **end;
    int count;
};

static struct test_cases all_cases, all_parts;
static void (*before_cases)(char **argv), (*after_part)(void);

__attribute__((unused)) static void add_case(struct test_cases *cases, struct test_case *c)
{
    *(cases->end ? cases->end : &cases->first) = c;
    cases->end = &c->next;
    cases->count++;
}

/* Adds a function to the list `all_cases` or `all_parts`, in the order of the file. Allocates nothing. */
#define ADD_CASE(cases, name, run, expected)                                                                         \
    __attribute__((constructor)) static void add_##name##_to_##cases(void)                                           \
    {                                                                                                                \
        static struct test_case c = {#name, run, expected, NULL};                                                    \
        add_case(&cases, &c);                                                                                        \
    }

/* Executes the program again for a part, or for a case without a child process. */
__attribute__((unused, noreturn)) static void execute_part(const char *name)
{
    alarm(CASE_SECONDS);
    execl("/proc/self/exe", "again", "--part", name, (char *)NULL);
    must(!"executed again");
    _exit(1);
}

#define CASE(name)                                                                                                   \
    static void name(void);                                                                                          \
    ADD_CASE(all_cases, name, name, NULL)                                                                            \
    static void name(void)

/* A case that is compiled for glibc only, because it tests what other C libraries do not have. */
__attribute__((unused)) static void needs_glibc(void)
{
    _exit(CASE_SKIPPED);
}
#define NEEDS_GLIBC(name) ADD_CASE(all_cases, name, needs_glibc, NULL)

/* Begins the function of a part. */
#define PART(name)                                                                                                   \
    static void name(void);                                                                                          \
    ADD_CASE(all_parts, name, name, NULL)                                                                            \
    static void name(void)

/* Begins the function of a case that runs in a new execution of the program. */
#define CASE_ANEW(name)                                                                                              \
    static void name##_anew(void)                                                                                    \
    {                                                                                                                \
        execute_part(#name);                                                                                         \
    }                                                                                                                \
    ADD_CASE(all_cases, name, name##_anew, NULL)                                                                     \
    PART(name)

/* Begins a function that runs before the cases, and in each new execution before the part. */
#define BEFORE_CASES(argv)                                                                                           \
    static void set_up_cases(char **argv);                                                                           \
    __attribute__((constructor)) static void add_before_cases(void)                                                  \
    {                                                                                                                \
        before_cases = set_up_cases;                                                                                 \
    }                                                                                                                \
    static void set_up_cases(__attribute__((unused)) char **argv)

static int run_part(const char *name)
{
    for (struct test_cases *cases = &all_parts; cases; cases = cases == &all_parts ? &all_cases : NULL)
        for (struct test_case *c = cases->first; c; c = c->next)
            if (!strcmp(c->name, name)) {
                c->run();
                if (after_part)
                    after_part();
                return 0;
            }
    must(!"part known");
    return 1;
}

/* Prints the line of a case; `wrong` is NULL if it passed. Returns whether it failed. */
__attribute__((unused)) static int print_case(int number, const struct test_case *c, const char *wrong)
{
    printf("%s %d %s\n", wrong ? "not ok" : "ok", number, c->name);
    if (wrong && *wrong)
        printf("# %s\n", wrong);
    return wrong != NULL;
}

/* Whether the environment names the case among those that take too long here. */
static int is_left_out(const struct test_case *c)
{
    const char *left_out = getenv("CASES_LEFT_OUT");
    return left_out && strstr(left_out, c->name);
}

#ifndef RUN_CASE
#define RUN_CASE run_case
/* Runs the case in a child. Returns whether it failed. */
static int run_case(int number, const struct test_case *c)
{
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        alarm(CASE_SECONDS);
        c->run();
        _exit(0);
    }
    waitpid(pid, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == CASE_SKIPPED) {
        printf("ok %d %s # SKIP not possible here\n", number, c->name);
        return 0;
    }
    char signal[32] = "";
    if (WIFSIGNALED(status))
        snprintf(signal, sizeof(signal), "ended by signal %d", WTERMSIG(status));
    return print_case(number, c, status ? signal : NULL);
}
#else
static int RUN_CASE(int number, const struct test_case *c);
#endif

int main(int argc, char **argv)
{
    int failed = 0, n = 0;
    if (before_cases)
        before_cases(argv);
    if (argc == 3 && !strcmp(argv[1], "--part"))
        return run_part(argv[2]);
    printf("1..%d\n", argc > 1 ? 1 : all_cases.count);
    for (struct test_case *c = all_cases.first; c; c = c->next)
        if (argc == 1 || !strcmp(argv[1], c->name)) {
            fflush(stdout);
            n++;
            if (argc == 1 && is_left_out(c))
                printf("ok %d %s # SKIP left out\n", n, c->name);
            else
                failed += RUN_CASE(n, c);
        }
    if (!n)
        printf("Bail out! no case %s\n", argv[1]);
    return failed || !n;
}

#endif
