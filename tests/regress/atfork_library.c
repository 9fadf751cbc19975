/*
 * A library whose constructor registers fork handlers, if the variable ATFORK_LIBRARY is in the environment. With
 * -DINTERPOSE it also defines __register_atfork(), or pthread_atfork() where that is all there is, counts its calls,
 * and passes them on.
 */
#define _GNU_SOURCE
#include "atfork.h"

#include <dlfcn.h>
#include <stdlib.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
struct atfork_library atfork_library = {.mutex = &mutex};

static void prepare(void)
{
    atfork_library.prepared++;
    pthread_mutex_lock(&mutex);
}

static void release(void)
{
    pthread_mutex_unlock(&mutex);
    atfork_library.released++;
}

__attribute__((constructor)) static void begin(void)
{
    if (getenv(ATFORK_LIBRARY))
        pthread_atfork(prepare, release, release);
}

#ifdef INTERPOSE

int atfork_interposed;

#ifndef __GLIBC__

int pthread_atfork(void (*before)(void), void (*parent)(void), void (*child)(void))
{
    union {
        void *symbol;
        __typeof__(pthread_atfork) *call;
    } next = {.symbol = dlsym(RTLD_NEXT, "pthread_atfork")};
    atfork_interposed++;
    return next.call(before, parent, child);
}

#else

typedef int register_function(void (*)(void), void (*)(void), void (*)(void), void *);
extern register_function __register_atfork;

int __register_atfork(void (*before)(void), void (*parent)(void), void (*child)(void), void *handle)
{
    union {
        void *symbol;
        register_function *call;
    } next = {.symbol = dlsym(RTLD_NEXT, "__register_atfork")};
    atfork_interposed++;
    return next.call(before, parent, child, handle);
}

#endif
#endif
