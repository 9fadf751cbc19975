/*
 * Explores scenarios: explore [--seconds N] [--scenario NAME] [--deviations N] [--seed N] [--replay FILE] [--list]
 *
 * For each scenario a process prepares the heap and then makes a child for each execution. First some random ones
 * find the words that threads share. Then all executions with one deviation follow, with two, and so on; and random
 * ones in the rest of the time. A failure leaves a trace in the directory that --traces names.
 */
#define _GNU_SOURCE
#include "explore.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <sys/syscall.h>

static struct {
    uint64_t executions, failures;
    unsigned exhausted; /* deviations up to which all executions were visited */
    unsigned points;    /* the most of one execution */
    unsigned failed;    /* of this scenario */
} * totals;

static struct {
    double seconds;
    unsigned deviations;
    uint64_t seed;
    const char *scenario, *replay, *traces;
    bool stop; /* at the first failure */
} options = {.seconds = 10, .deviations = 3, .seed = 1, .traces = "."};

/* The clock is the explored code's; this one is the machine's. */
static double now(void)
{
    struct timespec at;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

/* ---- one execution ---- */

static void write_trace(const struct scenario *scenario)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/trace-%u-%llu", options.traces, (unsigned)(scenario - scenarios),
             (unsigned long long)totals->failures);
    FILE *file = fopen(path, "w");
    if (!file)
        return;
    fprintf(file, "scenario %s\nfailure %s\ndeviations %u\nplain %u\nall %u\n", scenario->name, shared->message,
            shared->deviations, shared->plain, shared->all_words);
    for (unsigned i = 0; i < WORDS; i++)
        if (shared->touched[i].shared)
            fprintf(file, "word %lx\n", shared->touched[i].at);
    for (unsigned i = 0; i < shared->points; i++)
        fprintf(file, "choice %u %u\n", shared->choices[i].options, shared->choices[i].chosen);
    fclose(file);
    printf("FAILED: %s: %s\n  repeat it by --replay %s\n", scenario->name, shared->message, path);
    fflush(stdout);
}

static bool execute(const struct scenario *scenario)
{
    int status;
    fflush(NULL);
    shared->failed = false;
    shared->points = 0;
    shared->message[0] = 0;
    pid_t child = fork();
    if (child < 0) {
        perror("explore: fork");
        exit(2);
    }
    if (!child) {
        shared->log = getenv("EXPLORE_LOG") && totals->executions == strtoull(getenv("EXPLORE_LOG"), NULL, 10);
        alarm(20);
        schedule_run(scenario);
        _exit(0);
    }
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (!shared->failed && status) {
        shared->failed = true;
        snprintf(shared->message, sizeof(shared->message),
                 WIFSIGNALED(status) ? "ended by signal %d" : "ended with status %d",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    }
    totals->executions++;
    if (shared->points > totals->points)
        totals->points = shared->points;
    if (!shared->failed)
        return true;
    totals->failures++;
    totals->failed++;
    write_trace(scenario);
    return false;
}

/* What threads share is known better now. */
static void note_shared(void)
{
    for (unsigned i = 0; i < WORDS; i++) {
        struct word *word = &shared->touched[i];
        unsigned all = word->readers | word->writers;
        word->shared = word->writers && (all & (all - 1));
    }
    shared->grown = false;
}

/* ---- searches ---- */

static bool enough(double end)
{
    return now() >= end || totals->failed >= (options.stop ? 1 : 3);
}

#define LEARNING 200 /* executions, half of them with points at all words, so that migrations make words shared */
static void search_random(const struct scenario *scenario, unsigned deviations, uint64_t most, bool learning,
                          double end)
{
    unsigned typical = 200; /* points of an execution */
    for (uint64_t i = 0; i < most && !enough(end); i++) {
        shared->random = true;
        shared->seed = (options.seed + i) * 0x9e3779b97f4a7c15ull + 88172645463325252ull;
        shared->deviations = 1 + (unsigned)(i % deviations);
        shared->odds = 1 + typical / shared->deviations; /* they spread over the whole execution */
        shared->prefix = 0;
        shared->all_words = learning && i < LEARNING / 2;
        shared->plain = i % 2;
        execute(scenario);
        typical = (3 * typical + shared->points) / 4;
        if (shared->grown)
            note_shared();
    }
}

/* The next execution of a depth-first search: the last point with an option that was not tried. Returns false at the
 * end. */
static bool next_prefix(void)
{
    unsigned n = shared->points;
    while (n && shared->choices[n - 1].chosen + 1u >= shared->choices[n - 1].options)
        n--;
    if (!n)
        return false;
    shared->choices[n - 1].chosen++;
    shared->prefix = n;
    return true;
}

/* All executions with so many deviations. Returns false if time is up before. */
static bool search_all(const struct scenario *scenario, unsigned deviations, double end)
{
    shared->random = shared->plain = shared->all_words = false;
    shared->deviations = deviations;
    shared->prefix = 0;
    do {
        if (enough(end))
            return false;
        execute(scenario);
        if (shared->grown) {
            note_shared();
            shared->prefix = shared->points = 0; /* begin again, with more points */
            continue;
        }
    } while (shared->points == 0 || next_prefix());
    return true;
}

static void explore(const struct scenario *scenario, double seconds)
{
    double start = now(), end = start + seconds;
    search_random(scenario, 6, LEARNING, true, end);
    for (unsigned n = 0; n <= options.deviations && search_all(scenario, n, start + seconds * 2 / 3); n++)
        totals->exhausted = n;
    options.seed += LEARNING;
    search_random(scenario, 8, UINT64_MAX, false, end);
}

/* ---- a repetition ---- */

static const struct scenario *read_trace(const char *path)
{
    const struct scenario *found = NULL;
    char line[512];
    unsigned a, b, words = 0;
    unsigned long at;
    FILE *file = fopen(path, "r");
    if (!file) {
        fprintf(stderr, "explore: %s: %s; name a trace that a failure has left\n", path, strerror(errno));
        exit(2);
    }
    while (fgets(line, sizeof(line), file)) {
        line[strcspn(line, "\n")] = 0;
        if (!strncmp(line, "scenario ", 9))
            for (unsigned i = 0; i < scenario_count; i++)
                if (!strcmp(scenarios[i].name, line + 9))
                    found = &scenarios[i];
        if (sscanf(line, "deviations %u", &a) == 1)
            shared->deviations = a;
        if (sscanf(line, "plain %u", &a) == 1)
            shared->plain = a;
        if (sscanf(line, "all %u", &a) == 1)
            shared->all_words = a;
        if (sscanf(line, "word %lx", &at) == 1) {
            unsigned i = (unsigned)((at >> 3) * 0x9e3779b97f4a7c15ull >> 40) % WORDS;
            while (shared->touched[i].at)
                i = (i + 1) % WORDS;
            shared->touched[i] = (struct word){.at = at, .shared = true};
            words++;
        }
        if (sscanf(line, "choice %u %u", &a, &b) == 2 && shared->prefix < POINTS_MOST)
            shared->choices[shared->prefix++] = (struct choice){(uint8_t)a, (uint8_t)b};
    }
    fclose(file);
    if (!found || !words) {
        fprintf(stderr, "explore: %s: no trace of a scenario that exists\n", path);
        exit(2);
    }
    return found;
}

static int replay(void)
{
    const struct scenario *scenario = read_trace(options.replay);
    shared->log = true;
    sections_init();
    fibers_prepare();
    scenario->prepare();
    schedule_run(scenario); /* in this process, for a debugger */
    printf("the execution does not fail\n");
    return 1;
}

/* ---- the command ---- */

static void *shared_memory(size_t size)
{
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
        perror("explore: mmap");
        exit(2);
    }
    return at;
}

static void one(const struct scenario *scenario, double seconds)
{
    uint64_t executions = totals->executions, failures = totals->failures;
    totals->exhausted = 0;
    totals->points = totals->failed = 0;
    memset(shared->touched, 0, sizeof(shared->touched));
    fflush(NULL);
    pid_t child = fork();
    if (!child) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        sections_init();
        fibers_prepare();
        scenario->prepare();
        explore(scenario, seconds);
        exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    if (status) {
        totals->failures++;
        printf("FAILED: %s: the preparation ended with status %#x: %s\n", scenario->name, status, shared->message);
    }
    printf("%-40s %8llu executions, all with %u deviations, at most %u points, %llu failures\n", scenario->name,
           (unsigned long long)(totals->executions - executions), totals->exhausted, totals->points,
           (unsigned long long)(totals->failures - failures));
    fflush(stdout);
}

static void parse(int argc, char **argv)
{
    static const struct option names[] = {{"seconds", required_argument, NULL, 's'},
                                          {"scenario", required_argument, NULL, 'n'},
                                          {"deviations", required_argument, NULL, 'd'},
                                          {"seed", required_argument, NULL, 'r'},
                                          {"replay", required_argument, NULL, 'p'},
                                          {"traces", required_argument, NULL, 't'},
                                          {"stop", no_argument, NULL, 'x'},
                                          {"list", no_argument, NULL, 'l'},
                                          {NULL, 0, NULL, 0}};
    int option;
    while ((option = getopt_long(argc, argv, "", names, NULL)) != -1)
        switch (option) {
        case 's':
            options.seconds = atof(optarg);
            break;
        case 'n':
            options.scenario = optarg;
            break;
        case 'd':
            options.deviations = (unsigned)atoi(optarg);
            break;
        case 'r':
            options.seed = strtoull(optarg, NULL, 10);
            break;
        case 'p':
            options.replay = optarg;
            break;
        case 't':
            options.traces = optarg;
            break;
        case 'x':
            options.stop = true;
            break;
        case 'l':
            for (unsigned i = 0; i < scenario_count; i++)
                puts(scenarios[i].name);
            exit(0);
        default:
            exit(2);
        }
}

int main(int argc, char **argv)
{
    /* Addresses must be the same when a trace is repeated. */
    if (!(personality(0xffffffff) & ADDR_NO_RANDOMIZE) && personality(ADDR_NO_RANDOMIZE) != -1)
        execv("/proc/self/exe", argv);
    parse(argc, argv);
    shared = shared_memory(sizeof(*shared));
    totals = shared_memory(sizeof(*totals));
    if (options.replay)
        return replay();
    unsigned n = 0;
    for (unsigned i = 0; i < scenario_count; i++)
        n += !options.scenario || !strcmp(options.scenario, scenarios[i].name);
    if (!n) {
        fprintf(stderr, "explore: %s: no such scenario; --list names them\n", options.scenario);
        return 2;
    }
    for (unsigned i = 0; i < scenario_count; i++)
        if (!options.scenario || !strcmp(options.scenario, scenarios[i].name))
            one(&scenarios[i], options.seconds / n);
    printf("%llu executions, %llu failures\n", (unsigned long long)totals->executions,
           (unsigned long long)totals->failures);
    return totals->failures != 0;
}
