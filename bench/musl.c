/*
 * The micro suite for a C library without an environment of its own, which bench/musl.py runs: prints nanoseconds of
 * CPU time for each operation and the peak of resident memory in KiB. Usage: musl pair|batch|pass|larson
 *
 * `musl run PROGRAM ARGUMENTS...` runs a program with PRELOAD as its LD_PRELOAD, and writes the seconds of its CPU
 * time and the peak to descriptor 3. The peak is not below that of this small program, from which it is executed.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BATCH = 1000, THREADS = 2, SLOTS = 20000, RING = 1024 };

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static long peak_kib(void)
{
    char line[256];
    long kib = -1;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof(line), f))
        if (strncmp(line, "VmHWM:", 6) == 0)
            kib = atol(line + 6);
    if (f)
        fclose(f);
    return kib;
}

static uint64_t random_next(uint64_t *state)
{
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state;
}

/* Mostly small, at times up to 8 KiB. */
static size_t random_size(uint64_t *state)
{
    uint64_t r = random_next(state);
    return r % 16 ? 16 + r / 16 % 256 : 16 + r / 16 % 8000;
}

static unsigned long pair(void)
{
    enum { N = 3000000 };
    for (int i = 0; i < N; i++) {
        void *volatile p = malloc(16 + (size_t)i % 8 * 16);
        free(p);
    }
    return N;
}

static unsigned long batch(void)
{
    enum { ROUNDS = 1000 };
    static void *p[BATCH];
    uint64_t state = 1;
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < BATCH; i++) {
            p[i] = malloc(random_size(&state));
            *(char *)p[i] = 1;
        }
        for (int i = 0; i < BATCH; i++)
            free(p[i]);
    }
    return (unsigned long)ROUNDS * BATCH;
}

/* One thread allocates and the other frees. */
static _Atomic(void *) ring[RING];
enum { PASSED = 300000 };

static void *consume(void *unused)
{
    for (int i = 0; i < PASSED; i++) {
        void *p;
        while (!(p = atomic_exchange_explicit(&ring[i % RING], NULL, memory_order_acquire)))
            sched_yield();
        free(p);
    }
    return unused;
}

static unsigned long pass(void)
{
    pthread_t thread;
    uint64_t state = 1;
    pthread_create(&thread, NULL, consume, NULL);
    for (int i = 0; i < PASSED; i++) {
        char *p = malloc(random_size(&state));
        *p = 1;
        while (atomic_load_explicit(&ring[i % RING], memory_order_relaxed))
            sched_yield();
        atomic_store_explicit(&ring[i % RING], p, memory_order_release);
    }
    pthread_join(thread, NULL);
    return PASSED;
}

/* Each thread replaces blocks at random places, and leaves them to the next thread. */
static void *blocks[THREADS][SLOTS];
enum { LARSON_ROUNDS = 10, LARSON_EACH = 50000 };

static void *replace(void *number)
{
    void **mine = blocks[(uintptr_t)number];
    uint64_t state = (uintptr_t)number + 1;
    for (int i = 0; i < LARSON_EACH; i++) {
        uint64_t at = random_next(&state) % SLOTS;
        free(mine[at]);
        mine[at] = malloc(random_size(&state));
        *(char *)mine[at] = 1;
    }
    return NULL;
}

static unsigned long larson(void)
{
    for (int round = 0; round < LARSON_ROUNDS; round++) {
        pthread_t threads[THREADS];
        for (uintptr_t i = 0; i < THREADS; i++)
            pthread_create(&threads[i], NULL, replace, (void *)i);
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
    }
    return (unsigned long)LARSON_ROUNDS * LARSON_EACH * THREADS;
}

static int run_program(char **argv)
{
    struct rusage usage;
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        if (getenv("PRELOAD"))
            setenv("LD_PRELOAD", getenv("PRELOAD"), 1);
        close(3);
        execvp(argv[0], argv);
        _exit(127);
    }
    if (pid < 0 || wait4(pid, &status, 0, &usage) != pid)
        return 125;
    dprintf(3, "%.6f %ld\n",
            (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6,
            usage.ru_maxrss);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 125;
}

int main(int argc, char **argv)
{
    if (argc > 2 && !strcmp(argv[1], "run"))
        return run_program(argv + 2);
    static const struct {
        const char *name;
        unsigned long (*run)(void);
    } loads[] = {{"pair", pair}, {"batch", batch}, {"pass", pass}, {"larson", larson}};
    for (size_t i = 0; argc == 2 && i < sizeof(loads) / sizeof(loads[0]); i++) {
        if (strcmp(argv[1], loads[i].name) != 0)
            continue;
        double start = now_ns();
        double n = (double)loads[i].run(), each = (now_ns() - start) / n;
        printf("%.2f %ld\n", each, peak_kib());
        return 0;
    }
    fprintf(stderr, "usage: musl pair|batch|pass|larson\n");
    return 2;
}
