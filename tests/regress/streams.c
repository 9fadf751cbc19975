/*
 * Order of locks between streams and the allocator. Threads wait for each other like this:
 *
 *   flusher   fflush(NULL), or the end of the process, holds the list of streams and waits for a stream
 *   writer    holds that stream, whose buffer grows in realloc()
 *   forker    fork() has locked the allocator and waits for the list of streams
 */
#define _GNU_SOURCE
#include "../cases.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

enum { FORKS = 400, STREAMS = 3, CHILDREN = 20 };

static _Atomic bool stop;

static void *flush(void *unused)
{
    while (!stop)
        fflush(NULL);
    return unused;
}

/* The buffer of the stream is one block, which grows while the stream is locked. */
static void *grow(void *unused)
{
    while (!stop) {
        char *text = NULL;
        size_t size = 0;
        FILE *f = open_memstream(&text, &size);
        must(f);
        for (int i = 0; i < 200; i++)
            must(fprintf(f, "%0300d", i) == 300);
        must(fclose(f) == 0);
        free(text);
    }
    return unused;
}

static void fork_once(void)
{
    pid_t pid = fork();
    must(pid >= 0);
    if (pid == 0) {
        void *volatile p = malloc(5000);
        _exit(p ? 0 : 1);
    }
    must_succeed(pid);
}

static void start(pthread_t *threads)
{
    must(pthread_create(&threads[STREAMS], NULL, flush, NULL) == 0);
    for (int i = 0; i < STREAMS; i++)
        must(pthread_create(&threads[i], NULL, grow, NULL) == 0);
}

CASE(forks_beside_fflush_of_all_streams)
{
    pthread_t threads[STREAMS + 1];
    start(threads);
    for (int i = 0; i < FORKS; i++)
        fork_once();
    stop = true;
    for (int i = 0; i <= STREAMS; i++)
        must(pthread_join(threads[i], NULL) == 0);
}

static void *fork_on(void *unused)
{
    while (!stop)
        fork_once();
    return unused;
}

CASE(exit_beside_forks_and_streams)
{
    for (int i = 0; i < CHILDREN; i++) {
        pid_t pid = fork();
        must(pid >= 0);
        if (pid == 0) {
            pthread_t threads[STREAMS + 1], forker;
            start(threads);
            must(pthread_create(&forker, NULL, fork_on, NULL) == 0);
            for (int k = 0; k < 10 + i; k++)
                fork_once();
            exit(0);
        }
        must_succeed(pid);
    }
}
