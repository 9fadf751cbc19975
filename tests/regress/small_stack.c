/*
 * How much of a thread's stack the allocator takes. A thread of musl has 128 KiB, and programs ask for less. Each
 * case runs in a thread whose stack was filled with a pattern, and prints how much of it was overwritten.
 */
#define _GNU_SOURCE
#include "../executed.h"

#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

int malloc_trim(size_t pad);
void malloc_stats(void);
int malloc_info(int options, FILE *f);

enum { STACK = 512 << 10, MOST = 12 << 10, PATTERN = 0xa5, OBJECTS = 4000 };

static char *stack;

/* A thread runs `work` alone on a stack of its own. Returns how many bytes of it were used. */
static size_t used_by(void *(*work)(void *))
{
    pthread_attr_t attributes;
    pthread_t thread;
    stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(stack != MAP_FAILED);
    memset(stack, PATTERN, STACK);
    must(pthread_attr_init(&attributes) == 0 && pthread_attr_setstack(&attributes, stack, STACK) == 0);
    must(pthread_create(&thread, &attributes, work, NULL) == 0);
    must(pthread_join(thread, NULL) == 0);
    size_t untouched = 0;
    while (untouched < STACK && (unsigned char)stack[untouched] == PATTERN)
        untouched++;
    return STACK - untouched;
}

static void *nothing(void *unused)
{
    return unused;
}

/* Refills, flushes, new and empty slabs, objects of other threads, large blocks, and what programs rarely call. */
static void *all_paths(void *unused)
{
    static void *objects[OBJECTS];
    for (size_t size = 1; size < 3000000; size += size / 3 + 1) {
        int n = size < 2000 ? OBJECTS : size < 100000 ? 100 : 4;
        for (int i = 0; i < n; i++)
            must((objects[i] = malloc(size)));
        for (int i = 0; i < n; i++)
            free(objects[i]);
    }
    void *volatile block = calloc(3, 100000);
    for (size_t size = 10; size < 9000000; size *= 3)
        must((block = realloc(block, size)));
    free(block);
    for (size_t align = 16; align <= 1 << 22; align *= 4) {
        must(posix_memalign((void **)&objects[0], align, 100) == 0);
        free(objects[0]);
    }
    malloc_trim(0);
    pid_t pid = fork();
    if (pid == 0) {
        free(malloc(50));
        _exit(0);
    }
    must_succeed(pid);
    return unused;
}

static void *statistics(void *unused)
{
    malloc_stats();
    return unused;
}

__attribute__((noinline)) static void overflow(void)
{
    char *volatile block = malloc(40);
    block[40] = 1;
    free(block);
    __asm__ volatile("" ::: "memory");
}

static void *report(void *unused)
{
    overflow();
    return unused;
}

static void handle(int signal)
{
    (void)signal;
    all_paths(NULL);
}

static void *in_handler(void *unused)
{
    must(signal(SIGUSR1, handle) != SIG_ERR);
    must(raise(SIGUSR1) == 0);
    return unused;
}

/* What pthread_create() itself and the end of a thread take does not count. */
static void measure(void *(*work)(void *))
{
    size_t base = used_by(nothing), bytes = used_by(work);
    printf("# %zu bytes of stack, and %zu for the thread\n", bytes - base, base);
    must(bytes - base <= MOST);
}

#define STACK_CASE(name, work, settings, said)                                                                       \
    static void name(void)                                                                                           \
    {                                                                                                                \
        measure(work);                                                                                               \
    }                                                                                                                \
    static const struct expected name##_expected = {settings, said};                                                 \
    ADD_CASE(all_cases, name, name, &name##_expected)

struct expected {
    const char *settings; /* %s: a directory for records */
    const char *said;     /* part of standard error; NULL: nothing */
};

STACK_CASE(paths, all_paths, "SHEAF_DECAY=10", NULL)
STACK_CASE(paths_in_handler, in_handler, "SHEAF_DECAY=10", NULL)
STACK_CASE(paths_with_locks, all_paths, "SHEAF_RSEQ=off", NULL)
STACK_CASE(paths_on_nodes, all_paths, "SHEAF_NODES=2", NULL)
STACK_CASE(paths_recorded, all_paths, "SHEAF_RECORD=%s", NULL)
STACK_CASE(paths_sampled, all_paths, "SHEAF_RECORD=%s\nSHEAF_PROFILE=64", NULL)
STACK_CASE(paths_sampled_in_handler, in_handler, "SHEAF_RECORD=%s\nSHEAF_PROFILE=64", NULL)
STACK_CASE(paths_debugged, all_paths, "SHEAF_DEBUG=FZPU", NULL)
STACK_CASE(paths_debugged_in_handler, in_handler, "SHEAF_DEBUG=FZPU", NULL)
STACK_CASE(paths_hardened, all_paths, "SHEAF_HARDEN=all", NULL)
STACK_CASE(reports, report, "SHEAF_DEBUG=FZPU\nSHEAF_DEBUG_ACTION=continue", "overflow")
STACK_CASE(statistics_of_caches, statistics, "SHEAF_DECAY=10", "malloc-")

static int run_executed(int number, const struct test_case *c)
{
    static struct outcome outcome;
    const struct expected *expected = c->expected;
    char records[] = "/tmp/sheaf-stack-XXXXXX", settings[200], remove[100];
    must(mkdtemp(records));
    snprintf(settings, sizeof(settings), expected->settings, records);
    execute_case(c, settings, &outcome);
    snprintf(remove, sizeof(remove), "rm -rf %s", records);
    must(system(remove) == 0);
    bool right = expected->said ? strstr(outcome.text, expected->said) != NULL : !*outcome.text;
    const char *wrong = outcome.status ? "it failed" : right ? NULL : "it reported something else";
    return print_outcome(number, c, wrong, &outcome);
}
