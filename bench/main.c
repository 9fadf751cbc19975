/*
 * Runs one test in one process and prints one line of JSON with the minimum and the median of the repetitions.
 * `sheaf bench` compares allocators from many such processes.
 */
#define _GNU_SOURCE
#include "test.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOST_REPETITIONS = 1000, MOST_MOMENTS = 512 };

_Bool spread;
_Bool brief;
uint64_t bytes_live;

struct request {
    const char *test;
    uint64_t ops;         /* maximum; 0 means the default of the test */
    unsigned repetitions; /* 0 means the default of the test */
};

static const char usage_text[] = "Usage: %s TEST [--ops N] [--repetitions N] [--spread]\n"
                                 "       %s --list | --allocator\n"
                                 "\n"
                                 "Run one test and print the results as one line of JSON.\n"
                                 "\n"
                                 "  --list           list the tests with a description\n"
                                 "  --ops N          maximum operations in one repetition; also shortens waits\n"
                                 "  --repetitions N  number of timed repetitions (default: that of the test)\n"
                                 "  --spread         pin the threads of a test to the CPUs in turn\n"
                                 "  --allocator      print the file of the malloc that this process calls\n";

static const struct test *tables[16]; /* terminated by NULL */

void add_tests(const struct test *tests)
{
    size_t t = 0;
    while (tables[t] != NULL)
        t++;
    tables[t] = tests;
}

static void list_tests(void)
{
    for (size_t t = 0; tables[t] != NULL; t++)
        for (const struct test *test = tables[t]; test->name != NULL; test++)
            dprintf(STDOUT_FILENO, "%s\t%s\n", test->name, test->what);
}

static const struct test *find_test(const char *name)
{
    for (size_t t = 0; tables[t] != NULL; t++)
        for (const struct test *test = tables[t]; test->name != NULL; test++)
            if (strcmp(test->name, name) == 0)
                return test;
    fail("%s: no such test; see --list", name);
}

static struct moment {
    const char *name;
    uint64_t ms;
    uint64_t kib;
    uint64_t live_kib;
} moments[MOST_MOMENTS];
static unsigned moment_count;
static _Bool moments_closed; /* set after the first repetition */
static uint64_t begun_ns;
static uint64_t noting_ns; /* CPU time of note_memory(), which is not part of a test */

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec;
}

/* The clock of a test. */
static uint64_t test_ns(const struct test *test)
{
    return test->timing == CPU_TIME ? cpu_ns() - noting_ns : now_ns();
}

/* Must not call malloc, which could make the allocator return memory to the system. */
void note_memory(const char *moment)
{
    if (moments_closed || moment_count == MOST_MOMENTS)
        return;
    uint64_t before = cpu_ns();
    moments[moment_count++] = (struct moment){
        .name = moment,
        .ms = (now_ns() - begun_ns) / 1000000,
        .kib = resident_kib(),
        .live_kib = bytes_live / 1024,
    };
    noting_ns += cpu_ns() - before;
}

void sleep_ms(uint64_t milliseconds)
{
    struct timespec left = {.tv_sec = (time_t)(milliseconds / 1000),
                            .tv_nsec = (long)(milliseconds % 1000) * 1000000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
}

/* Pins the thread to the n-th CPU that this process may use, modulo their number. */
static void choose_cpu(pthread_attr_t *attributes, unsigned n)
{
    cpu_set_t allowed, one;
    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0)
        fail("--spread: the CPUs of this process cannot be read; run it without --spread");
    unsigned left = n % (unsigned)CPU_COUNT(&allowed), cpu = 0;
    while (!CPU_ISSET(cpu, &allowed) || left-- > 0)
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    pthread_attr_setaffinity_np(attributes, sizeof(one), &one);
}

pthread_t start_thread(unsigned n, void *(*body)(void *), void *argument)
{
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    if (spread)
        choose_cpu(&attributes, n);
    if (pthread_create(&thread, &attributes, body, argument) != 0)
        fail("thread %u could not be started; raise the limit of processes (ulimit -u)", n);
    pthread_attr_destroy(&attributes);
    return thread;
}

static void print_moments(const struct test *test)
{
    dprintf(STDOUT_FILENO, ", \"memory\": [");
    for (unsigned i = 0; i < moment_count; i++) {
        dprintf(STDOUT_FILENO, "%s{\"moment\": \"%s\", \"ms\": %llu, \"rss_kib\": %llu", i ? ", " : "",
                moments[i].name != NULL ? moments[i].name : "", (unsigned long long)moments[i].ms,
                (unsigned long long)moments[i].kib);
        if (test->timing != WALL_TIME)
            dprintf(STDOUT_FILENO, ", \"live_kib\": %llu", (unsigned long long)moments[i].live_kib);
        dprintf(STDOUT_FILENO, "}");
    }
    dprintf(STDOUT_FILENO, "]");
}

static void print_result(const struct test *test, uint64_t ops, double *ns, unsigned repetitions, struct usage used,
                         uint64_t peak_kib)
{
    double wall_ns = 0;
    for (unsigned i = 0; i < repetitions; i++)
        wall_ns += ns[i] * (double)ops;
    sort_doubles(ns, repetitions);
    dprintf(STDOUT_FILENO,
            "{\"schema_version\": 1, \"test\": \"%s\", \"allocator\": \"%s\", \"ops\": %llu, \"repetitions\": %u, "
            "\"ns_per_op_min\": %.3f, \"ns_per_op_median\": %.3f, \"peak_rss_kib\": %llu, \"minor_faults\": %llu, "
            "\"major_faults\": %llu, \"wall_us\": %.0f, \"user_us\": %llu, \"system_us\": %llu",
            test->name, allocator_path(), (unsigned long long)ops, repetitions, ns[0],
            median_of_sorted(ns, repetitions), (unsigned long long)peak_kib, (unsigned long long)used.minor_faults,
            (unsigned long long)used.major_faults, wall_ns / 1000, (unsigned long long)used.user_us,
            (unsigned long long)used.system_us);
    if (test->timing != WALL_TIME)
        dprintf(STDOUT_FILENO, ", \"timing\": \"%s\"", test->timing == CPU_TIME ? "cpu" : "none");
    if (moment_count != 0)
        print_moments(test);
    dprintf(STDOUT_FILENO, "}\n");
}

static void run_test(const struct test *test, uint64_t ops, unsigned repetitions)
{
    static double ns[MOST_REPETITIONS];
    uint64_t done = 0;

    begun_ns = now_ns();
    if (test->prepare != NULL)
        test->prepare(test);
    if (!test->cold)
        test->run(test, ops / 4 + 1);

    struct usage before = usage_now();
    for (unsigned i = 0; i < repetitions; i++) {
        uint64_t start = test_ns(test);
        done = test->run(test, ops);
        ns[i] = (double)(test_ns(test) - start) / (double)done;
        moments_closed = 1;
    }
    struct usage used = usage_since(before);
    moments_closed = 0;
    if (test->linger != NULL)
        test->linger(test);

    uint64_t peak_kib = proc_kib("/proc/self/status", "VmHWM:");
    if (test->finish != NULL)
        test->finish(test);
    print_result(test, done, ns, repetitions, used, peak_kib);
}

/* Returns true if there is a test to run, false if an option was answered. */
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
            dprintf(STDOUT_FILENO, usage_text, program_invocation_short_name, program_invocation_short_name);
            return 0;
        }
        if (strcmp(argv[i], "--spread") == 0) {
            spread = 1;
        } else if (strcmp(argv[i], "--ops") == 0) {
            brief = 1;
            request->ops = number_argument("--ops", argv[i + 1], UINT64_C(1) << 40);
            i++;
        } else if (strcmp(argv[i], "--repetitions") == 0) {
            request->repetitions = (unsigned)number_argument("--repetitions", argv[i + 1], MOST_REPETITIONS);
            i++;
        } else if (argv[i][0] == '-' || request->test != NULL) {
            fail("%s: unknown argument; see --help", argv[i]);
        } else {
            request->test = argv[i];
        }
    }
    if (request->test == NULL)
        fail("no test given; see --list");
    return 1;
}

int main(int argc, char **argv)
{
    struct request request = {0};
    if (!parse(argc, argv, &request))
        return 0;
    const struct test *test = find_test(request.test);
    run_test(test, request.ops != 0 && request.ops < test->ops ? request.ops : test->ops,
             request.repetitions ? request.repetitions : test->repetitions);
    return 0;
}
