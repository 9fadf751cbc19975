/*
 * After the fork and execve rows of the regression report on the kernel's sheaves (linux-mm, 2026), for any malloc: a
 * burst of allocations and frees as in a fork, and forks and execs while another thread allocates.
 */
#define _GNU_SOURCE
#include "../test.h"

#include <sys/wait.h>
#include <unistd.h>

enum { OBJECTS = 200, HELD = 4096 };

/* Sizes of the objects that a fork copies: areas, nodes of their tree, chains. */
static const size_t sizes[] = {184, 256, 80};

static void burst(void)
{
    void *clone[OBJECTS];
    for (unsigned i = 0; i < OBJECTS; i++)
        clone[i] = take(sizes[i % 3]);
    for (unsigned i = 0; i < OBJECTS; i++)
        give(clone[i]);
}

static uint64_t run_bursts(const struct test *test, uint64_t ops)
{
    (void)test;
    for (uint64_t i = 0; i < ops; i++)
        burst();
    return ops;
}

/* ---- under load ---- */

static pthread_t loader;
static _Atomic _Bool stop;

static void *load(void *unused)
{
    static void *held[HELD];
    uint64_t seed = 1;
    while (!stop) {
        size_t place = random_next(&seed) % HELD;
        give(held[place]);
        held[place] = take(random_small_size(&seed));
    }
    for (size_t i = 0; i < HELD; i++)
        give(held[i]);
    return unused;
}

static void prepare_load(const struct test *test)
{
    (void)test;
    loader = start_thread(1, load, NULL);
}

static void finish_load(const struct test *test)
{
    (void)test;
    stop = 1;
    pthread_join(loader, NULL);
}

static void await(pid_t child)
{
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail("a child did not end as it should; it needs /bin/true and a free process");
}

static uint64_t run_fork(const struct test *test, uint64_t ops)
{
    (void)test;
    for (uint64_t i = 0; i < ops; i++) {
        pid_t child = fork();
        if (child == 0) {
            burst();
            _exit(0);
        }
        await(child);
    }
    return ops;
}

static uint64_t run_exec(const struct test *test, uint64_t ops)
{
    (void)test;
    for (uint64_t i = 0; i < ops; i++) {
        pid_t child = fork();
        if (child == 0) {
            char *argv[] = {"true", NULL}, *envp[] = {NULL};
            execve("/bin/true", argv, envp);
            _exit(127);
        }
        await(child);
    }
    return ops;
}

static const struct test children_tests[] = {
    {.name = "fork-burst",
     .what = "200 objects of 184, 256 and 80 bytes, then all freed; an op is such a burst",
     .ops = 50000,
     .repetitions = 7,
     .run = run_bursts},
    {.name = "fork-loaded",
     .what = "fork of a child that makes one burst, while a thread allocates; an op is one child",
     .ops = 200,
     .repetitions = 5,
     .prepare = prepare_load,
     .run = run_fork,
     .finish = finish_load},
    {.name = "exec-loaded",
     .what = "fork and exec of /bin/true, while a thread allocates; an op is one child",
     .ops = 200,
     .repetitions = 5,
     .prepare = prepare_load,
     .run = run_exec,
     .finish = finish_load},
    {0},
};
ADD_TESTS(children_tests)
