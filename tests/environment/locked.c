/*
 * Memory that mlockall() locks, in a process without CAP_IPC_LOCK that may lock 8 MiB: the calls succeed, most of the
 * limit is left for the program, and what is allocated afterwards is locked. Each case runs this program anew,
 * because it matters what was allocated before the call. Without the right to become another user cases are skipped.
 * Usage: locked [CASE]
 */
#define _GNU_SOURCE
#include "../cases.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#ifndef MCL_ONFAULT
#define MCL_ONFAULT 4
#endif

#define KIB   (1ul << 10)
#define MIB   (1ul << 20)
#define LIMIT (8 * MIB)
#define BLOCK 1000ul

static const char *self;

static void become_nobody(void)
{
    enum { NOBODY = 65534 };
    struct rlimit limit = {LIMIT, LIMIT};
    must(!setrlimit(RLIMIT_MEMLOCK, &limit));
    if (setresgid(NOBODY, NOBODY, NOBODY) || setresuid(NOBODY, NOBODY, NOBODY))
        _exit(CASE_SKIPPED);
}

/* A line of /proc/self/status, in bytes; allocates nothing. */
static size_t status(const char *name)
{
    static char text[8192];
    int fd = open("/proc/self/status", O_RDONLY);
    must(fd >= 0);
    ssize_t got = read(fd, text, sizeof(text) - 1);
    close(fd);
    must(got > 0);
    text[got] = 0;
    const char *line = strstr(text, name);
    must(line);
    return strtoul(line + strlen(name) + 1, NULL, 10) * KIB;
}

static bool resident(const void *p, size_t size)
{
    unsigned char pages[64];
    uintptr_t from = (uintptr_t)p & ~4095ul, to = ((uintptr_t)p + size + 4095) & ~4095ul;
    must(to - from <= sizeof(pages) * 4096 && !mincore((void *)from, to - from, pages));
    for (size_t i = 0; i < (to - from) / 4096; i++)
        if (!(pages[i] & 1))
            return false;
    return true;
}

static void *volatile kept;

static void start(void)
{
    for (size_t i = 1; i < 100; i++) {
        kept = malloc(10 * i);
        free(kept);
    }
}

/* Blocks until malloc() fails. They are linked, so that they can be freed. */
static void *all_blocks(size_t *bytes)
{
    void **last = NULL, **block;
    for (*bytes = 0; *bytes < 4 * LIMIT && (block = malloc(BLOCK)); *bytes += BLOCK) {
        memset(block, 7, BLOCK);
        *block = last;
        last = block;
    }
    return last;
}

static void free_blocks(void *last)
{
    while (last) {
        void *next = *(void **)last;
        free(last);
        last = next;
    }
}

/* The process may lock so much: what it has mapped and what it allocates stay below the limit. */
static size_t fill(void)
{
    size_t first, second;
    free_blocks(all_blocks(&first));
    free_blocks(all_blocks(&second));
    printf("# %zu KiB, again %zu KiB; VmLck %zu KiB, VmSize %zu KiB\n", first / KIB, second / KIB,
           status("VmLck") / KIB, status("VmSize") / KIB);
    fflush(stdout);
    must(second + 64 * KIB >= first);
    return first;
}

/* ---- what may be allocated after each call ---- */

static void future_before(void)
{
    become_nobody();
    must(!mlockall(MCL_FUTURE));
    must(fill() >= 7 * MIB);
    must(status("VmLck") <= LIMIT);
}

static void future_after(void)
{
    become_nobody();
    start();
    must(!mlockall(MCL_FUTURE));
    must(fill() >= 7 * MIB);
}

static void current_and_future_before(void)
{
    become_nobody();
    must(!mlockall(MCL_CURRENT | MCL_FUTURE));
    must(fill() >= 4800 * KIB);
}

static void current_and_future_after(void)
{
    become_nobody();
    start();
    must(!mlockall(MCL_CURRENT | MCL_FUTURE));
    must(fill() >= 4000 * KIB);
}

static void on_fault(void)
{
    become_nobody();
    start();
    must(!mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT));
    must(fill() >= 4000 * KIB);
}

/* Nothing tells the allocator of this call; refusals do. */
static void call_of_the_system(void)
{
    become_nobody();
    must(!syscall(SYS_mlockall, MCL_FUTURE));
    must(fill() >= 7 * MIB);
}

/* ---- what is locked ---- */

static void allocated_memory_is_locked(void)
{
    become_nobody();
    must(!mlockall(MCL_FUTURE));
    size_t before = status("VmLck");
    static char *blocks[40];
    for (int i = 0; i < 40; i++) {
        must(blocks[i] = malloc(100000));
        must(resident(blocks[i], 100000)); /* although nothing was written there */
    }
    must(status("VmLck") >= before + 40 * 100000ul);
}

static void unlocked_memory_grows_again(void)
{
    become_nobody();
    must(!mlockall(MCL_CURRENT | MCL_FUTURE));
    start();
    void *some = malloc(MIB);
    must(some && !munlockall());
    must(status("VmLck") == 0);
    for (int i = 0; i < 100; i++)
        must(kept = malloc(MIB));
    size_t bytes;
    all_blocks(&bytes);
    must(bytes >= 4 * LIMIT);
}

/* Locks are not inherited: the child may allocate more than the limit. */
static void children_are_not_locked(void)
{
    become_nobody();
    start();
    must(!mlockall(MCL_CURRENT | MCL_FUTURE));
    void *blocks[100];
    for (size_t i = 0; i < 100; i++)
        must(blocks[i] = malloc(i * 7));
    pid_t pid = fork();
    if (!pid) {
        must(status("VmLck") == 0);
        size_t bytes;
        all_blocks(&bytes);
        must(bytes >= 4 * LIMIT);
        _exit(0);
    }
    must_succeed(pid);
    for (size_t i = 0; i < 100; i++)
        free(blocks[i]);
    fill();
}

static void *work(void *seed)
{
    uint64_t n = (uintptr_t)seed;
    char *mine[50] = {NULL};
    for (int i = 0; i < 20000; i++) {
        n = n * 2862933555777941757u + 3037000493u;
        size_t at = (n >> 40) % 50, size = (n >> 20) % 2000 + 1;
        must(!mine[at] || mine[at][0] == (char)at);
        free(mine[at]);
        must(mine[at] = malloc(size));
        memset(mine[at], (int)at, size);
    }
    for (int i = 0; i < 50; i++)
        free(mine[i]);
    return NULL;
}

static void run_threads(void)
{
    pthread_t threads[4];
    pthread_attr_t attr;
    must(!pthread_attr_init(&attr) && !pthread_attr_setstacksize(&attr, 64 * KIB));
    for (uintptr_t i = 0; i < 4; i++)
        must(!pthread_create(&threads[i], &attr, work, (void *)(i + 1)));
    for (int i = 0; i < 4; i++)
        must(!pthread_join(threads[i], NULL));
}

/* Threads come to slots that have no memory yet. */
static void threads_while_locked(void)
{
    become_nobody();
    must(!mlockall(MCL_CURRENT | MCL_FUTURE));
    run_threads();
    must(!munlockall());
    run_threads();
}

static void threads_after_a_start(void)
{
    become_nobody();
    start();
    must(!mlockall(MCL_CURRENT | MCL_FUTURE));
    run_threads();
}

/* With the right to lock anything, heaps of any size. */
static void a_large_heap(void)
{
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    if (setrlimit(RLIMIT_MEMLOCK, &limit))
        _exit(CASE_SKIPPED);
    must(!mlockall(MCL_CURRENT | MCL_FUTURE));
    size_t before = status("VmRSS");
    for (int i = 0; i < 60000; i++)
        must(kept = malloc(BLOCK));
    must(status("VmRSS") - before < 72 * MIB); /* little is mapped ahead, because all of it is resident */
    run_threads();
}

static void errors_are_told(void)
{
    must(mlockall(0) == -1 && errno == EINVAL);
    must(mlockall(1 << 20) == -1 && errno == EINVAL);
    become_nobody();
    struct rlimit none = {0, 0};
    must(!setrlimit(RLIMIT_MEMLOCK, &none));
    must(mlockall(MCL_FUTURE) == -1 && errno == EPERM);
    size_t bytes;
    free_blocks(all_blocks(&bytes));
    must(bytes >= 4 * LIMIT);
}

/* Each case in a process in which nothing was allocated. */
#define CASES(X)                                                                                                     \
    X("future-before-the-start", future_before)                                                                      \
    X("future-after-the-start", future_after)                                                                        \
    X("current-and-future-before-the-start", current_and_future_before)                                              \
    X("current-and-future-after-the-start", current_and_future_after)                                                \
    X("on-fault", on_fault)                                                                                          \
    X("by-the-system-call", call_of_the_system)                                                                      \
    X("allocated-memory-is-locked", allocated_memory_is_locked)                                                      \
    X("unlocked-memory-grows-again", unlocked_memory_grows_again)                                                    \
    X("children-are-not-locked", children_are_not_locked)                                                            \
    X("threads-while-locked", threads_while_locked)                                                                  \
    X("threads-after-a-start", threads_after_a_start)                                                                \
    X("a-large-heap", a_large_heap)                                                                                  \
    X("errors-are-told", errors_are_told)

#define ANEW(name, run)                                                                                              \
    static void run##_anew(void)                                                                                     \
    {                                                                                                                \
        execl(self, self, "run", name, (char *)NULL);                                                                \
        must(!"executed");                                                                                           \
    }
CASES(ANEW)

#define PLAIN(name, run)   {name, run},
#define WRAPPED(name, run) {name, run##_anew},
static const struct test_case plain[] = {CASES(PLAIN)}, wrapped[] = {CASES(WRAPPED)};

int main(int argc, char **argv)
{
    enum { COUNT = sizeof(plain) / sizeof(*plain) };
    self = argv[0];
    for (size_t i = 0; argc == 3 && i < COUNT; i++)
        if (!strcmp(argv[2], plain[i].name)) {
            plain[i].run();
            _exit(0);
        }
    return run_cases(argc, argv, wrapped, COUNT);
}
