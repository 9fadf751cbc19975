#define _GNU_SOURCE
#include "preload/streams.h"

#ifndef __GLIBC__

#include "front/malloc/malloc.h"
#include "preload/names.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* Recursive: a destructor or a handler of atexit() that runs after leave() may fork, or flush its streams. */
static pthread_mutex_t list = {{{PTHREAD_MUTEX_RECURSIVE}}};

void streams_lock(void)
{
    pthread_mutex_lock(&list);
}

void streams_unlock(void)
{
    pthread_mutex_unlock(&list);
}

/* The child's thread has another number, so it is not the owner. */
void streams_renew(void)
{
    list = (pthread_mutex_t){{{PTHREAD_MUTEX_RECURSIVE}}};
}

sheaf_export int fflush(FILE *stream)
{
    __typeof__(fflush) *next = next_or("fflush", int(FILE *), NULL);
    if (likely(stream != NULL))
        return next(stream);
    streams_lock();
    int result = next(NULL);
    streams_unlock();
    return result;
}

/* In musl it is another name of fflush(). */
sheaf_export int fflush_unlocked(FILE *stream)
{
    return fflush(stream);
}

/*
 * exit() keeps the list for good. A fork that begins later waits here, as it would for the list, but without Sheaf's
 * locks, which other threads may need to release a stream. A destructor would be too late: libc then holds another
 * lock of fork()'s.
 */
static void leave(void)
{
    streams_lock();
}

/*
 * musl's pthread_create() does not allocate, so the first allocation may be made by several threads at once, beside a
 * fork or in the child of vfork(). Sheaf starts before there is more than one thread.
 */
__attribute__((constructor)) static void start_alone(void)
{
    malloc_init();
    atexit(leave);
}

#endif
