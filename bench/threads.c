/*
 * bench-threads: runs generations of threads. Memory that a generation leaves behind shows as the difference in
 * resident memory between the first generation, which populates stacks and caches, and the last one.
 *
 * The program supplies the stacks and makes them resident at the start, because libc's cache of stacks would change
 * the resident memory.
 *
 * A barrier between allocation and free keeps all threads of a generation alive at the same time. Each thread frees
 * its own blocks except one, which its neighbour frees.
 */
#define _GNU_SOURCE
#include "measure.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { MOST_ALIVE = 30000, MOST_GENERATIONS = 30000, BLOCKS = 6, STACK = 128 * 1024, STACK_USED = 8192 };

static const size_t sizes[BLOCKS] = {24, 64, 200, 1000, 4000, 20000};

static struct {
    unsigned alive;
    pthread_barrier_t all_have_allocated;
    pthread_t *threads;
    char *stacks;
    void **left_behind; /* one block for each thread, freed by its neighbour */
} run;

struct figures {
    uint64_t start_kib;   /* before the first thread */
    uint64_t warm_kib;    /* after the first generation */
    uint64_t after_kib;   /* after the last generation */
    uint64_t settled_kib; /* after settle() */
    uint64_t wall_ns;
    double ns_per_thread[MOST_GENERATIONS];
};

static void *one_thread(void *argument)
{
    size_t me = (size_t)argument;
    void *blocks[BLOCKS];
    for (unsigned i = 0; i < BLOCKS; i++)
        blocks[i] = memset(take(sizes[i]), 1, sizes[i]);
    run.left_behind[me] = take(sizes[me % BLOCKS]);
    pthread_barrier_wait(&run.all_have_allocated);

    give(run.left_behind[(me + 1) % run.alive]);
    for (unsigned i = 0; i < BLOCKS; i++)
        give(blocks[i]);
    return NULL;
}

static void one_generation(void)
{
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    for (size_t i = 0; i < run.alive; i++) {
        pthread_attr_setstack(&attributes, run.stacks + i * STACK, STACK);
        if (pthread_create(&run.threads[i], &attributes, one_thread, (void *)i) != 0)
            fail("thread %zu could not be started; use a smaller --alive or raise the limit of processes (ulimit -u)",
                 i);
    }
    pthread_attr_destroy(&attributes);
    for (size_t i = 0; i < run.alive; i++)
        pthread_join(run.threads[i], NULL);
}

static char *make_stacks(unsigned count)
{
    char *stacks = mmap(NULL, (size_t)count * STACK, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (stacks == MAP_FAILED)
        fail("no memory for %u stacks; use a smaller --alive", count);
    for (size_t i = 1; i <= count; i++)
        memset(stacks + i * STACK - STACK_USED, 0, STACK_USED);
    return stacks;
}

/* Sleeps, then makes some allocations: an allocator that returns old memory may do so only when it is called. */
static void settle(uint64_t milliseconds)
{
    enum { LITTLE = 300 };
    static void *objects[LITTLE];
    struct timespec pause = {.tv_sec = (time_t)(milliseconds / 1000),
                             .tv_nsec = (long)(milliseconds % 1000) * 1000000};
    nanosleep(&pause, NULL);
    for (unsigned i = 0; i < LITTLE; i++)
        objects[i] = take(sizes[i % BLOCKS]);
    for (unsigned i = 0; i < LITTLE; i++)
        give(objects[i]);
}

static void measure(unsigned generations, uint64_t settle_ms, struct figures *figures)
{
    pthread_barrier_init(&run.all_have_allocated, NULL, run.alive);
    figures->start_kib = resident_kib();
    one_generation();
    figures->warm_kib = resident_kib();
    for (unsigned g = 0; g < generations; g++) {
        uint64_t start = now_ns();
        one_generation();
        uint64_t took = now_ns() - start;
        figures->wall_ns += took;
        figures->ns_per_thread[g] = (double)took / run.alive;
    }
    figures->after_kib = resident_kib();
    settle(settle_ms);
    figures->settled_kib = resident_kib();
}

static void print_moment(const char *name, uint64_t ms, uint64_t kib, const char *after)
{
    dprintf(STDOUT_FILENO, "{\"moment\": \"%s\", \"ms\": %llu, \"rss_kib\": %llu}%s", name, (unsigned long long)ms,
            (unsigned long long)kib, after);
}

static void print_figures(struct figures *figures, unsigned generations, uint64_t settle_ms, struct usage used)
{
    sort_doubles(figures->ns_per_thread, generations);
    dprintf(STDOUT_FILENO,
            "{\"schema_version\": 1, \"test\": \"threads\", \"allocator\": \"%s\", \"ops\": %u, \"repetitions\": %u, "
            "\"ns_per_op_min\": %.3f, \"ns_per_op_median\": %.3f, \"peak_rss_kib\": %llu, \"minor_faults\": %llu, "
            "\"major_faults\": %llu, \"wall_us\": %llu, \"user_us\": %llu, \"system_us\": %llu, \"memory\": [",
            allocator_path(), run.alive, generations, figures->ns_per_thread[0],
            median_of_sorted(figures->ns_per_thread, generations),
            (unsigned long long)proc_kib("/proc/self/status", "VmHWM:"), (unsigned long long)used.minor_faults,
            (unsigned long long)used.major_faults, (unsigned long long)figures->wall_ns / 1000,
            (unsigned long long)used.user_us, (unsigned long long)used.system_us);
    print_moment("start", 0, figures->start_kib, ", ");
    print_moment("first generation", 0, figures->warm_kib, ", ");
    print_moment("last generation", figures->wall_ns / 1000000, figures->after_kib, ", ");
    print_moment("settled", figures->wall_ns / 1000000 + settle_ms, figures->settled_kib, "]}\n");
}

int main(int argc, char **argv)
{
    static struct figures figures;
    uint64_t total = 20000, settle_ms = 1200;
    run.alive = 1000;
    for (int i = 1; i < argc; i += 2) {
        if (strcmp(argv[i], "--threads") == 0)
            total = number_argument("--threads", argv[i + 1], 100000000);
        else if (strcmp(argv[i], "--alive") == 0)
            run.alive = (unsigned)number_argument("--alive", argv[i + 1], MOST_ALIVE);
        else if (strcmp(argv[i], "--settle-ms") == 0)
            settle_ms = number_argument("--settle-ms", argv[i + 1], 600000);
        else
            fail("%s: unknown argument; use [--threads N] [--alive N] [--settle-ms N]", argv[i]);
    }
    uint64_t generations = (total + run.alive - 1) / run.alive;
    if (generations > MOST_GENERATIONS)
        fail("--threads %llu: too many; give at most %d times --alive", (unsigned long long)total, MOST_GENERATIONS);

    run.threads = scratch(run.alive * sizeof(*run.threads));
    run.left_behind = scratch(run.alive * sizeof(*run.left_behind));
    run.stacks = make_stacks(run.alive);
    struct usage before = usage_now();
    measure((unsigned)generations, settle_ms, &figures);
    print_figures(&figures, (unsigned)generations, settle_ms, usage_since(before));
    return 0;
}
