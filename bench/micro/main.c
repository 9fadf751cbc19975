/*
 * bench-micro: one test, one process, one line of JSON. The repetitions inside serve the minimum and the median;
 * whether two allocators differ is for compare.py to say, from many processes.
 */
#define _GNU_SOURCE
#include "micro.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MOST_REPETITIONS = 1000 };

static const struct test *const tables[] = {pairs_tests, batch_tests, thread_tests, memory_tests, process_tests};

_Bool spread;

struct request {
    const char *test;
    uint64_t ops;         /* 0: the test's own */
    unsigned repetitions; /* 0: the test's own */
};

static const char usage_text[] = "Usage: bench-micro TEST [--ops N] [--repetitions N] [--spread]\n"
                                 "       bench-micro --list | --allocator\n"
                                 "\n"
                                 "Runs one test and prints its figures as one line of JSON.\n"
                                 "\n"
                                 "  --list           the tests, each with what it does\n"
                                 "  --ops N          operations in one repetition (default: the test's own)\n"
                                 "  --repetitions N  timed repetitions (default: the test's own)\n"
                                 "  --spread         give each thread of a test a CPU of its own, in turn\n"
                                 "  --allocator      the file whose malloc this process calls\n";

static void list_tests(void)
{
    for (size_t t = 0; t < sizeof(tables) / sizeof(tables[0]); t++)
        for (const struct test *test = tables[t]; test->name != NULL; test++)
            dprintf(STDOUT_FILENO, "%s\t%s\n", test->name, test->what);
}

static const struct test *find_test(const char *name)
{
    for (size_t t = 0; t < sizeof(tables) / sizeof(tables[0]); t++)
        for (const struct test *test = tables[t]; test->name != NULL; test++)
            if (strcmp(test->name, name) == 0)
                return test;
    fail("no test '%s'; see bench-micro --list", name);
}

static void print_result(const struct test *test, uint64_t ops, double *ns, unsigned repetitions, struct usage used)
{
    double wall_ns = 0;
    for (unsigned i = 0; i < repetitions; i++)
        wall_ns += ns[i] * (double)ops;
    sort_doubles(ns, repetitions);
    dprintf(STDOUT_FILENO,
            "{\"schema_version\": 1, \"test\": \"%s\", \"allocator\": \"%s\", \"ops\": %llu, \"repetitions\": %u, "
            "\"ns_per_op_min\": %.3f, \"ns_per_op_median\": %.3f, \"peak_rss_kib\": %llu, \"minor_faults\": %llu, "
            "\"major_faults\": %llu, \"wall_us\": %.0f, \"user_us\": %llu, \"system_us\": %llu}\n",
            test->name, allocator_path(), (unsigned long long)ops, repetitions, ns[0],
            median_of_sorted(ns, repetitions), (unsigned long long)proc_kib("/proc/self/status", "VmHWM:"),
            (unsigned long long)used.minor_faults, (unsigned long long)used.major_faults, wall_ns / 1000,
            (unsigned long long)used.user_us, (unsigned long long)used.system_us);
}

static void run_test(const struct test *test, uint64_t ops, unsigned repetitions)
{
    static double ns[MOST_REPETITIONS];
    uint64_t done = 0;

    if (test->prepare != NULL)
        test->prepare(test);
    if (!test->cold)
        test->run(test, ops / 4 + 1);

    struct usage before = usage_now();
    for (unsigned i = 0; i < repetitions; i++) {
        uint64_t start = now_ns();
        done = test->run(test, ops);
        ns[i] = (double)(now_ns() - start) / (double)done;
    }
    struct usage used = usage_since(before);

    print_result(test, done, ns, repetitions, used);
    if (test->finish != NULL)
        test->finish(test);
}

/* True when there is a test to run, false when the answer was printed already. */
static _Bool parse(int argc, char **argv, struct request *request)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--list") == 0) {
            list_tests();
            return 0;
        }
        if (strcmp(argv[i], "--allocator") == 0) {
            dprintf(STDOUT_FILENO, "%s\n", allocator_path());
            return 0;
        }
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            dprintf(STDOUT_FILENO, "%s", usage_text);
            return 0;
        }
        if (strcmp(argv[i], "--spread") == 0) {
            spread = 1;
        } else if (strcmp(argv[i], "--ops") == 0) {
            request->ops = number_argument("--ops", argv[i + 1], UINT64_C(1) << 40);
            i++;
        } else if (strcmp(argv[i], "--repetitions") == 0) {
            request->repetitions = (unsigned)number_argument("--repetitions", argv[i + 1], MOST_REPETITIONS);
            i++;
        } else if (argv[i][0] == '-' || request->test != NULL) {
            fail("'%s' is not understood; see bench-micro --help", argv[i]);
        } else {
            request->test = argv[i];
        }
    }
    if (request->test == NULL)
        fail("no test given; see bench-micro --list");
    return 1;
}

int main(int argc, char **argv)
{
    struct request request = {0};
    if (!parse(argc, argv, &request))
        return 0;
    const struct test *test = find_test(request.test);
    run_test(test, request.ops ? request.ops : test->ops,
             request.repetitions ? request.repetitions : test->repetitions);
    return 0;
}
