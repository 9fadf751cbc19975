/* Starting a thread of our own. */
#ifndef SHEAF_OS_THREAD_H
#define SHEAF_OS_THREAD_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

/* 0: the system's default. */
static inline bool thread_try(void *(*run)(void *), size_t stack)
{
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    if (stack)
        pthread_attr_setstacksize(&attributes, stack);
    bool done = !pthread_create(&thread, &attributes, run, NULL);
    pthread_attr_destroy(&attributes);
    return done;
}

/*
 * Detached, and with all signals blocked: the program's are not for it. With the system's default stack where a
 * program's thread-local data, which lie there, leave no room on `stack` bytes. False: there is no thread to be had.
 */
static inline bool thread_start(void *(*run)(void *), size_t stack)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    bool done = thread_try(run, stack) || thread_try(run, 0);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return done;
}

#endif
