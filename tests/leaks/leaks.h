/*
 * Cases that run with SHEAF_LEAKS=1. The sum at the end of the report is compared: "lost 2 KiB in 2 blocks, 1 KiB in
 * 1 block through them" or "nothing lost".
 *
 * Sizes of lost blocks are those of size classes, so that the sums are the same whether requested sizes are known
 * (SHEAF_DEBUG, samples) or not.
 */
#ifndef SHEAF_TESTS_LEAKS_H
#define SHEAF_TESTS_LEAKS_H

#include "../executed.h"

struct expected {
    const char *sum;  /* NULL: there is no report */
    const char *also; /* another part of standard error; NULL: none */
    int slow;         /* too slow where each allocation is debugged */
};

/* Begins the function of a case. */
#define LEAK_CASE_WITH(name, sum, also, slow)                                                                        \
    static const struct expected name##_expected = {sum, also, slow};                                                \
    static void name(void);                                                                                          \
    ADD_CASE(all_cases, name, name, &name##_expected)                                                                \
    static void name(void)
#define LEAK_CASE(name, sum) LEAK_CASE_WITH(name, sum, NULL, 0)

/* The same for a case none of whose addresses may be left on the stack or in registers. */
#define AWAY_CASE_WITH(name, sum, also, slow)                                                                        \
    static void name##_away(void);                                                                                   \
    LEAK_CASE_WITH(name, sum, also, slow)                                                                            \
    {                                                                                                                \
        away(name##_away);                                                                                           \
    }                                                                                                                \
    static void name##_away(void)
#define AWAY_CASE(name, sum) AWAY_CASE_WITH(name, sum, NULL, 0)

/* Keeps the compiler from knowing what becomes of a pointer. */
static void *volatile sink;

__attribute__((unused)) static void *block(size_t n)
{
    void *p = malloc(n);
    must(p);
    memset(p, 0, n);
    return p;
}

/* Overwrites the part of the stack that earlier calls have used, so that no stale address is left there. */
__attribute__((unused, noinline)) static void scrub(void)
{
    volatile char bytes[64 << 10];
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = 0;
    sink = NULL;
}

/* Calls a function, and leaves none of its addresses on the stack or in registers. */
__attribute__((unused, noinline)) static void away(void (*call)(void))
{
    volatile char gap[1024];
    gap[0] = 0;
    call();
    gap[sizeof(gap) - 1] = 0;
    scrub();
}

BEFORE_CASES(argv)
{
    after_part = scrub;
}

static const char *judge(const struct expected *c, const struct outcome *outcome)
{
    if (outcome->status)
        return "it ended with another status";
    const char *sum = NULL, *text = outcome->text;
    for (const char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        if (!strncmp(line, "sheaf: lost ", 12) || !strncmp(line, "sheaf: nothing lost", 19))
            sum = line + 7;
    if (!c->sum)
        return sum ? "there is a report" : NULL;
    if (!sum || strncmp(sum, c->sum, strlen(c->sum)) != 0 || sum[strlen(c->sum)] != ';')
        return c->sum;
    return c->also && !strstr(text, c->also) ? c->also : NULL;
}

static int run_executed(int number, const struct test_case *c)
{
    static struct outcome outcome;
    const struct expected *expected = (const struct expected *)c->expected;
    char records[] = "/tmp/sheaf-leaks-XXXXXX", text[100] = "SHEAF_LEAKS=1";
    int sampled = getenv("SHEAF_PROFILE") != NULL; /* needs a record; each case gets a directory of its own for it */
    if (expected->slow && getenv("SHEAF_DEBUG")) {
        printf("ok %d %s # SKIP it takes too long with SHEAF_DEBUG\n", number, c->name);
        return 0;
    }
    if (sampled) {
        must(mkdtemp(records));
        snprintf(text, sizeof(text), "SHEAF_LEAKS=1\nSHEAF_RECORD=%s", records);
    }
    execute_case(c, text, &outcome);
    if (sampled) {
        snprintf(text, sizeof(text), "rm -rf %s", records);
        must(system(text) == 0);
    }
    return print_outcome(number, c, judge(expected, &outcome), &outcome);
}

#endif
