/*
 * Detached threads end while others run. musl unmaps the stack and the thread-local data of such a thread before the
 * thread is gone, so the kernel must not know an rseq area there any more. Destructors of thread-specific data
 * allocate and free until the last round.
 */
#define _GNU_SOURCE
#include "../cases.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

enum { AT_ONCE = 8, SPINNING = 4, BLOCKS = 50, ROUNDS = 20, SMALL_STACK = 16 << 10 };

static _Atomic int live;
static _Atomic bool stop;
static pthread_key_t key;

/* With a chance of two in three there is another round. */
static void destructor(void *p)
{
    unsigned long random = (unsigned long)p >> 4;
    free(p);
    if (random % 3)
        must(pthread_setspecific(key, malloc(200)) == 0);
}

static void *allocate(void *unused)
{
    void *blocks[BLOCKS];
    must(pthread_setspecific(key, malloc(100)) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < BLOCKS; i++)
            must((blocks[i] = malloc(16 + i * 20)));
        for (int i = 0; i < BLOCKS; i++)
            free(blocks[i]);
    }
    live--;
    return unused;
}

/* Keeps the CPUs busy, so that threads are preempted at every point. */
static void *spin(void *unused)
{
    while (!stop)
        sched_yield();
    return unused;
}

static void run_detached(int count, size_t stack)
{
    pthread_t spinning[SPINNING];
    pthread_attr_t detached;
    must(pthread_key_create(&key, destructor) == 0);
    for (int i = 0; i < SPINNING; i++)
        must(pthread_create(&spinning[i], NULL, spin, NULL) == 0);
    must(pthread_attr_init(&detached) == 0);
    must(pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED) == 0);
    if (stack && stack < (size_t)sysconf(_SC_THREAD_STACK_MIN))
        _exit(CASE_SKIPPED); /* libc's least depends on the size of a page */
    must(!stack || pthread_attr_setstacksize(&detached, stack) == 0);
    for (int i = 0; i < count; i++) {
        while (live >= AT_ONCE)
            sched_yield();
        pthread_t thread;
        live++;
        if (pthread_create(&thread, &detached, allocate, NULL) != 0)
            live--; /* those that end have not given back their memory yet */
    }
    while (live)
        sched_yield();
    stop = true;
    for (int i = 0; i < SPINNING; i++)
        must(pthread_join(spinning[i], NULL) == 0);
}

CASE(detached_threads_end_among_others)
{
    run_detached(10000, 0);
}

/* The least that glibc and musl allow, and musl's default. */
CASE(detached_threads_with_stacks_of_16_KiB)
{
    run_detached(3000, SMALL_STACK);
}

CASE(detached_threads_with_stacks_of_128_KiB)
{
    run_detached(3000, 128 << 10);
}
