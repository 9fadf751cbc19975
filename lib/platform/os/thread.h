/* Starting a thread of the library. */
#ifndef SHEAF_OS_THREAD_H
#define SHEAF_OS_THREAD_H

#include "platform/os/libc.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

typedef __typeof__(pthread_create) thread_create;

/* A `stack` of 0 selects the system's default size. */
static inline bool thread_try(thread_create *create, void *(*run)(void *), size_t stack)
{
    pthread_attr_t attributes;
    pthread_t thread;
    if (!create)
        return false;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    if (stack)
        pthread_attr_setstacksize(&attributes, stack);
    bool done = !create(&thread, &attributes, run, NULL);
    pthread_attr_destroy(&attributes);
    return done;
}

/*
 * Starts a detached thread by `create`, which is pthread_create() or NULL, with all signals blocked, so that it runs
 * none of the program's handlers. If the program's thread-local data leaves no room in a stack of `stack` bytes, the
 * thread gets the default size. Returns false when no thread can be created, as with glibc before 2.34 in a program
 * without libpthread. pthread_create() allocates: not for signal handlers.
 */
static inline bool thread_start(thread_create *create, void *(*run)(void *), size_t stack)
{
    sigset_t all, old;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &old); /* pthread_sigmask() would need glibc 2.32 */
    bool done = thread_try(create, run, stack) || thread_try(create, run, 0);
    sigprocmask(SIG_SETMASK, &old, NULL);
    return done;
}

#endif
