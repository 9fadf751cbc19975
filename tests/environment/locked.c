/*
 * Memory that mlockall() locks, in a process without CAP_IPC_LOCK that may lock 8 MiB: the calls succeed, most of the
 * limit is left for the program, and what is allocated afterwards is locked. Each case runs this program anew,
 * because it matters what was allocated before the call. Without the right to become another user cases are skipped.
 * Usage: locked [CASE]
 */
#define _GNU_SOURCE
#include "../cases.h"
#include "../proc.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
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

static void become_nobody(void)
{
    enum { NOBODY = 65534 };
    struct rlimit limit = {LIMIT, LIMIT};
    must(!setrlimit(RLIMIT_MEMLOCK, &limit));
    if (setresgid(NOBODY, NOBODY, NOBODY) || setresuid(NOBODY, NOBODY, NOBODY))
        _exit(CASE_SKIPPED);
}

/* A line of /proc/self/status, in bytes. */
static size_t status(const char *name)
{
    return proc_number("/proc/self/status", name) * KIB;
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
           status("VmLck:") / KIB, status("VmSize:") / KIB);
    fflush(stdout);
    must(second + 64 * KIB >= first);
    return first;
}

/* ---- what may be allocated after each call ---- */

CASE_ANEW(future_before_the_start)
{
    become_nobody();
    must(!mlockall(MCL_FUTURE));
    must(fill() >= 7 * MIB);
    must(status("VmLck:") <= LIMIT);
}

CASE_ANEW(future_after_the_start)
{
    become_nobody();
    start();
    must(!mlockall(MCL_FUTURE));
    must(fill() >= 7 * MIB);
}

CASE_ANEW(current_and_future_before_the_start)
{
    become_nobody();
    must(!mlockall(MCL_CURRENT | MCL_FUTURE));
    must(fill() >= 4800 * KIB);
}

CASE_ANEW(current_and_future_after_the_start)
{
    become_nobody();
    start();
    must(!mlockall(MCL_CURRENT | MCL_FUTURE));
    must(fill() >= 4000 * KIB);
}

CASE_ANEW(on_fault)
{
    become_nobody();
    start();
    must(!mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT));
    must(fill() >= 4000 * KIB);
}

/* Nothing tells the allocator of this call; refusals do. */
CASE_ANEW(by_the_system_call)
{
    become_nobody();
    must(!syscall(SYS_mlockall, MCL_FUTURE));
    must(fill() >= 7 * MIB);
}

/* ---- what is locked ---- */

CASE_ANEW(allocated_memory_is_locked)
{
    become_nobody();
    must(!mlockall(MCL_FUTURE));
    size_t before = status("VmLck:");
    static char *blocks[40];
    for (int i = 0; i < 40; i++) {
        must(blocks[i] = malloc(100000));
        must(resident(blocks[i], 100000)); /* although nothing was written there */
    }
    must(status("VmLck:") >= before + 40 * 100000ul);
}

CASE_ANEW(unlocked_memory_grows_again)
{
    become_nobody();
    must(!mlockall(MCL_CURRENT | MCL_FUTURE));
    start();
    void *some = malloc(MIB);
    must(some && !munlockall());
    must(status("VmLck:") == 0);
    for (int i = 0; i < 100; i++)
        must(kept = malloc(MIB));
    size_t bytes;
    all_blocks(&bytes);
    must(bytes >= 4 * LIMIT);
}

/* Locks are not inherited: the child may allocate more than the limit. */
CASE_ANEW(children_are_not_locked)
{
    become_nobody();
    start();
    must(!mlockall(MCL_CURRENT | MCL_FUTURE));
    void *blocks[100];
    for (size_t i = 0; i < 100; i++)
        must(blocks[i] = malloc(i * 7));
    pid_t pid = fork();
    if (!pid) {
        must(status("VmLck:") == 0);
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
CASE_ANEW(threads_while_locked)
{
    become_nobody();
    must(!mlockall(MCL_CURRENT | MCL_FUTURE));
    run_threads();
    must(!munlockall());
    run_threads();
}

CASE_ANEW(threads_after_a_start)
{
    become_nobody();
    start();
    must(!mlockall(MCL_CURRENT | MCL_FUTURE));
    run_threads();
}

/* With the right to lock anything, heaps of any size. */
CASE_ANEW(a_large_heap)
{
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    if (setrlimit(RLIMIT_MEMLOCK, &limit))
        _exit(CASE_SKIPPED);
    must(!mlockall(MCL_CURRENT | MCL_FUTURE));
    size_t before = status("VmRSS:");
    for (int i = 0; i < 60000; i++)
        must(kept = malloc(BLOCK));
    must(status("VmRSS:") - before < 72 * MIB); /* little is mapped ahead, because all of it is resident */
    run_threads();
}

CASE_ANEW(errors_are_told)
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
