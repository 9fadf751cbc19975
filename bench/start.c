/*
 * bench-start: starts a program many times, in rounds that run every contestant in random order, and prints all
 * samples as JSON. The time of a sample is that of posix_spawn and wait4.
 *
 * The program is linked statically to be small: with vfork, a child inherits the peak resident size of its parent,
 * and wait4 cannot report less. `launcher_kib` in the output is this lower bound.
 */
#define _GNU_SOURCE
#include "measure.h"

#include <errno.h>
#include <spawn.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_CONTESTANTS = 32, MOST_VARIABLES = 8, MOST_ROUNDS = 100000 };

struct sample {
    uint32_t ns; /* saturates at 4 s */
    uint32_t maxrss_kib;
    uint32_t minor_faults;
    uint32_t user_us;
    uint32_t system_us;
};

struct contestant {
    const char *name;
    char *environment[MOST_VARIABLES + 1];
    unsigned variables;
    struct sample *samples; /* one for each round */
};

struct plan {
    struct contestant contestants[MOST_CONTESTANTS];
    unsigned count;
    unsigned rounds;
    unsigned warm_up;
    char **command;
};

static uint32_t microseconds(struct timeval t)
{
    return (uint32_t)t.tv_sec * 1000000U + (uint32_t)t.tv_usec;
}

static struct sample start_once(const struct contestant *c, char **command)
{
    struct rusage used;
    int status = 0;
    pid_t child;
    uint64_t start = now_ns();
    int error = posix_spawn(&child, command[0], NULL, NULL, command, c->environment);
    if (error != 0)
        fail("%s: %s", command[0], strerror(error));
    while (wait4(child, &status, 0, &used) < 0)
        if (errno != EINTR)
            fail("%s: waiting failed: %s", command[0], strerror(errno));
    uint64_t took = now_ns() - start;

    if (WIFSIGNALED(status))
        fail("%s with %s: killed by signal %d", command[0], c->name, WTERMSIG(status));
    if (WEXITSTATUS(status) != 0)
        fail("%s with %s: ended with status %d", command[0], c->name, WEXITSTATUS(status));
    return (struct sample){
        .ns = took < UINT32_MAX ? (uint32_t)took : UINT32_MAX,
        .maxrss_kib = (uint32_t)used.ru_maxrss,
        .minor_faults = (uint32_t)used.ru_minflt,
        .user_us = microseconds(used.ru_utime),
        .system_us = microseconds(used.ru_stime),
    };
}

/*
 * The order is random, not rotated, so that no contestant always follows the same one: a predecessor that leaves the
 * CPU caches cold slows the next start.
 */
static void shuffle(unsigned *order, unsigned count)
{
    static uint64_t seed = 1;
    for (unsigned i = count; i-- > 1;) {
        unsigned other = (unsigned)(random_next(&seed) >> 32) % (i + 1), moved = order[i];
        order[i] = order[other];
        order[other] = moved;
    }
}

static void run_rounds(struct plan *plan)
{
    unsigned *order = scratch(plan->count * sizeof(*order));
    for (unsigned c = 0; c < plan->count; c++) {
        plan->contestants[c].samples = scratch(plan->rounds * sizeof(struct sample));
        order[c] = c;
    }
    for (unsigned round = 0; round < plan->warm_up + plan->rounds; round++) {
        shuffle(order, plan->count);
        for (unsigned i = 0; i < plan->count; i++) {
            struct contestant *c = &plan->contestants[order[i]];
            struct sample sample = start_once(c, plan->command);
            if (round >= plan->warm_up)
                c->samples[round - plan->warm_up] = sample;
        }
    }
}

static void print_field(const struct plan *plan, const struct contestant *c, const char *name, size_t offset)
{
    printf(", \"%s\": [", name);
    for (unsigned r = 0; r < plan->rounds; r++)
        printf("%s%u", r ? ", " : "", *(const uint32_t *)((const char *)&c->samples[r] + offset));
    printf("]");
}

static void print_samples(const struct plan *plan)
{
    printf("{\"schema_version\": 1, \"program\": \"%s\", \"launcher_kib\": %llu, \"contestants\": [",
           plan->command[0], (unsigned long long)proc_kib("/proc/self/status", "VmHWM:"));
    for (unsigned i = 0; i < plan->count; i++) {
        const struct contestant *c = &plan->contestants[i];
        printf("%s{\"name\": \"%s\"", i ? ", " : "", c->name);
        print_field(plan, c, "ns", offsetof(struct sample, ns));
        print_field(plan, c, "maxrss_kib", offsetof(struct sample, maxrss_kib));
        print_field(plan, c, "minor_faults", offsetof(struct sample, minor_faults));
        print_field(plan, c, "user_us", offsetof(struct sample, user_us));
        print_field(plan, c, "system_us", offsetof(struct sample, system_us));
        printf("}");
    }
    printf("]}\n");
}

/* --set NAME begins a contestant. The --env VAR=VALUE options after it are its whole environment. */
static void add_variable(struct plan *plan, char *variable)
{
    if (plan->count == 0 || variable == NULL || strchr(variable, '=') == NULL)
        fail("--env: wrong form or place; write --env VAR=VALUE after --set NAME");
    struct contestant *c = &plan->contestants[plan->count - 1];
    if (c->variables == MOST_VARIABLES)
        fail("--env: too many variables; give at most %d for one contestant", MOST_VARIABLES);
    c->environment[c->variables++] = variable;
}

static void parse(int argc, char **argv, struct plan *plan)
{
    int i = 1;
    for (; i + 1 < argc && strcmp(argv[i], "--") != 0; i += 2) {
        if (strcmp(argv[i], "--rounds") == 0)
            plan->rounds = (unsigned)number_argument("--rounds", argv[i + 1], MOST_ROUNDS);
        else if (strcmp(argv[i], "--warm-up") == 0)
            plan->warm_up = (unsigned)number_argument("--warm-up", argv[i + 1], MOST_ROUNDS);
        else if (strcmp(argv[i], "--env") == 0)
            add_variable(plan, argv[i + 1]);
        else if (strcmp(argv[i], "--set") != 0)
            fail("%s: unknown argument; use --rounds, --warm-up, --set, --env, and -- PROGRAM", argv[i]);
        else if (plan->count == MOST_CONTESTANTS)
            fail("--set: too many contestants; give at most %d", MOST_CONTESTANTS);
        else
            plan->contestants[plan->count++].name = argv[i + 1];
    }
    if (i + 1 >= argc || plan->count == 0)
        fail("usage: [--rounds N] [--warm-up N] --set NAME [--env VAR=VALUE]... [--set ...] -- PROGRAM [ARGUMENTS]");
    plan->command = &argv[i + 1];
}

int main(int argc, char **argv)
{
    static struct plan plan = {.rounds = 300, .warm_up = 5};
    parse(argc, argv, &plan);
    run_rounds(&plan);
    print_samples(&plan);
    return 0;
}
