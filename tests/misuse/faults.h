/*
 * One fault for each case, see executed.h: the program executes itself again without and with debugging, and checks
 * both reports. `--table` prints the results as rows of the tables in docs/debug.md.
 *
 * Cases allocate by give() and free by take() where a report must name the callers. They pass the pointer that they
 * misuse to tell(), and it must be in the report. DEBUG_SETTINGS says how the program runs with debugging.
 */
#ifndef SHEAF_TESTS_FAULTS_H
#define SHEAF_TESTS_FAULTS_H

#include "../executed.h"

struct expected {
    const char *what;     /* the description of the fault in the table; NULL: it is not there */
    const char *debugged; /* the report's beginning; NULL: no report; or SHOWS or NOTHING */
    const char *plain;    /* the same without debugging; if NULL, the process may also crash */
    const char *cache;    /* the cache that the report must name */
    int owned;            /* with debugging the report must name give() and, after a free, take() */
};

/* Begins the function of a case. */
#define FAULT(name, ...)                                                                                             \
    static void name(void);                                                                                          \
    static const struct expected name##_expected = {__VA_ARGS__};                                                    \
    ADD_CASE(all_cases, name, name, &name##_expected)                                                                \
    static void name(void)

#define DOUBLE   "double free of"
#define OVER     "overflow: bytes were written past the end of"
#define UNDER    "underflow: bytes were written before the start of"
#define AFTER    "write after free into"
#define INTERIOR "free of interior pointer"
#define FOREIGN  "free of foreign pointer"
#define SHOWS    "shows"   /* the program reads the fill pattern */
#define NOTHING  "nothing" /* the use is legal */

enum { SAW = 42 };

/* Ends the process after it has read debugging's fill pattern from freed or uninitialized memory. */
__attribute__((unused)) static void shows_poison(void)
{
    _exit(SAW);
}

static int saw(const struct outcome *outcome)
{
    return WIFEXITED(outcome->status) && WEXITSTATUS(outcome->status) == SAW;
}

/* Returns what is wrong with a report of `kind`, or NULL if it is right. */
static const char *judge_report(const struct expected *fault, const char *kind, const struct outcome *outcome,
                                int debugged)
{
    char pointer[32], line[512] = "";
    const char *text = outcome->text, *by = strstr(text, "allocated by");
    snprintf(pointer, sizeof(pointer), "%p", outcome->told);
    if (strncmp(text, "sheaf: ", 7) || strncmp(text + 7, kind, strlen(kind)))
        return "the report begins differently";
    size_t first = strcspn(text, "\n");
    memcpy(line, text, first < sizeof(line) - 1 ? first : sizeof(line) - 1);
    if (!debugged && strcmp(text + first, "\n") != 0)
        return "the report is not one line";
    if (!strstr(line, fault->cache))
        return "the report names another cache";
    if (outcome->told && !strstr(line, pointer))
        return "the report names another pointer";
    if (debugged && fault->owned && (!by || !strstr(by, "give+")))
        return "the report lacks the allocation's backtrace";
    if (debugged && fault->owned && strstr(kind, "free") && !strstr(kind, "interior") && !strstr(text, "take+"))
        return "the report lacks the free's backtrace";
    return WIFSIGNALED(outcome->status) && WTERMSIG(outcome->status) == SIGABRT
               ? NULL
               : "the process did not end by SIGABRT";
}

static const char *judge(const struct expected *fault, const char *kind, const struct outcome *outcome, int debugged)
{
    if (kind && !strcmp(kind, NOTHING))
        return *outcome->text || outcome->status ? "legal use fails or makes a report" : NULL;
    if (kind && !strcmp(kind, SHOWS))
        return saw(outcome) ? NULL : "the program did not see poison";
    if (kind)
        return judge_report(fault, kind, outcome, debugged);
    if (strstr(outcome->text, "sheaf: "))
        return "a report was printed although none is expected";
    return debugged && outcome->status ? "the process ended without a report" : NULL;
}

static int run_executed(int number, const struct test_case *c)
{
    static struct outcome plain, debugged;
    const struct expected *fault = c->expected;
    execute_case(c, "", &plain);
    execute_case(c, DEBUG_SETTINGS, &debugged);
    const char *wrong = judge(fault, fault->plain, &plain, 0);
    if (wrong)
        return print_outcome(number, c, wrong, &plain);
    return print_outcome(number, c, judge(fault, fault->debugged, &debugged, 1), &debugged);
}

static const char *cell(const char *kind)
{
    return !kind ? "no" : !strcmp(kind, SHOWS) ? "reads the fill pattern" : "yes";
}

/* Prints a fault's row of the table. It shows what was found, which is not compared with what is expected. */
static void print_row(const struct test_case *c)
{
    static struct outcome plain, debugged;
    const struct expected *fault = c->expected;
    char kind[128] = "";
    if (!fault->what)
        return;
    execute_case(c, "", &plain);
    execute_case(c, DEBUG_SETTINGS, &debugged);
    if (!strncmp(debugged.text, "sheaf: ", 7))
        memcpy(kind, debugged.text + 7, strcspn(debugged.text + 7, "0"));
    if (strstr(kind, " ("))
        *strstr(kind, " (") = 0;
    for (size_t n = strlen(kind); n && kind[n - 1] == ' '; n--)
        kind[n - 1] = 0;
    printf("| %s | %s | %s |\n", fault->what, cell(strstr(plain.text, "sheaf: ") ? "yes" : NULL),
           *kind ? kind : cell(saw(&debugged) ? SHOWS : NULL));
}

BEFORE_CASES(argv)
{
    if (!argv[1] || strcmp(argv[1], "--table") != 0)
        return;
    for (const struct test_case *c = all_cases.first; c; c = c->next)
        print_row(c);
    exit(0);
}

#endif
