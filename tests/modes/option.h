/* Cases that run with one of Sheaf's options set, see executed.h. */
#ifndef SHEAF_TESTS_OPTION_H
#define SHEAF_TESTS_OPTION_H

#include "../executed.h"

struct expected {
    const char *settings; /* one "SHEAF_NAME=VALUE" on each line */
    int signal;           /* the signal that must end it; 0: the case must return */
    const char *said[3];  /* parts of its standard error, in order; if the first is NULL, it must be empty */
};

/* Begins the function of a case. What follows the signal are the parts of its standard error, or NULL. */
#define OPTION_CASE(name, settings, signal, ...)                                                                     \
    static void name(void);                                                                                          \
    OPTION_CASE_OF(name, name, settings, signal, __VA_ARGS__)                                                        \
    static void name(void)

/* A case whose function is `run`, which serves several cases. */
#define OPTION_CASE_OF(run, name, settings, signal, ...)                                                             \
    static const struct expected name##_expected = {settings, signal, {__VA_ARGS__}};                                \
    ADD_CASE(all_cases, name, run, &name##_expected)

/* A bad value of an option is reported, and `run` finds the default in effect. */
#define BAD_VALUE(run, name, option, value, why)                                                                     \
    OPTION_CASE_OF(run, name, option "=" value, 0, "sheaf: " option "=" value ": ", why, "the default is used\n")

static const char *judge(const struct expected *c, const struct outcome *outcome)
{
    const char *text = outcome->text;
    if (c->signal ? !WIFSIGNALED(outcome->status) || WTERMSIG(outcome->status) != c->signal : outcome->status != 0)
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

static int run_executed(int number, const struct test_case *c)
{
    static struct outcome outcome;
    const struct expected *expected = c->expected;
    execute_case(c, expected->settings, &outcome);
    return print_outcome(number, c, judge(expected, &outcome), &outcome);
}

__attribute__((unused)) static int all_are(const void *p, size_t n, int value)
{
    for (size_t i = 0; i < n; i++)
        if (((const unsigned char *)p)[i] != value)
            return 0;
    return 1;
}

#endif
