/*
 * Stacks are walked without waiting for the dynamic linker: while a library is opened, signal handlers and other
 * threads allocate, and each allocation is traced. musl's dl_iterate_phdr() and dladdr() take the lock that dlopen()
 * holds, so a handler that interrupted it waited for ever. LIBRARY and BROKEN name libraries.
 */
#define _GNU_SOURCE
#include "../modes/option.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

enum { OPENED = 20000, FORKS = 200 };

static pthread_t opener;
static _Atomic bool stop;
static _Atomic unsigned handled;

static void allocate(int signal)
{
    (void)signal;
    for (size_t size = 10; size < 100; size += 30)
        free(memset(malloc(size), 1, size));
    handled++;
}

static void *interrupt(void *unused)
{
    while (!stop) {
        unsigned before = handled;
        must(pthread_kill(opener, SIGUSR1) == 0);
        while (handled == before && !stop)
            allocate(0);
    }
    return unused;
}

/* Calls `work` while signals interrupt it. */
static void while_interrupted(void (*work)(void))
{
    pthread_t other;
    opener = pthread_self();
    must(signal(SIGUSR1, allocate) != SIG_ERR);
    must(pthread_create(&other, NULL, interrupt, NULL) == 0);
    work();
    stop = true;
    must(pthread_join(other, NULL) == 0);
    must(handled > 0);
}

static void open_often(void)
{
    for (int i = 0; i < OPENED; i++) {
        void *library = dlopen(getenv("LIBRARY"), RTLD_NOW);
        must(library);
        must(dlclose(library) == 0);
    }
}

static void fail_often(void)
{
    for (int i = 0; i < OPENED / 10; i++)
        must(!dlopen(getenv("BROKEN"), RTLD_NOW));
}

static void fork_often(void)
{
    for (int i = 0; i < FORKS; i++) {
        pid_t pid = fork();
        must(pid >= 0);
        if (pid == 0) {
            void *volatile block = malloc(60);
            free(block);
            _exit(dlopen(getenv("LIBRARY"), RTLD_NOW) ? 0 : 1);
        }
        must_succeed(pid);
    }
}

#define WHILE_INTERRUPTED(name, work)                                                                                \
    OPTION_CASE(name, "SHEAF_DEBUG=FZPU", 0, NULL)                                                                   \
    {                                                                                                                \
        while_interrupted(work);                                                                                     \
    }

WHILE_INTERRUPTED(handlers_allocate_while_libraries_open, open_often)
WHILE_INTERRUPTED(handlers_allocate_while_opening_fails, fail_often)
WHILE_INTERRUPTED(handlers_allocate_while_forking, fork_often)

/* The library is not in the table of objects before dlopen() returns. */
OPTION_CASE(constructors_are_in_reports, "SHEAF_DEBUG=FZPU\nSHEAF_DEBUG_ACTION=continue\nOVERFLOW=1", 0, "overflow",
            "opened_constructor+")
{
    must(dlopen(getenv("LIBRARY"), RTLD_NOW));
}
