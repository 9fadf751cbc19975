/*
 * Fork handlers that take a mutex under which threads allocate, registered before the first allocation and at other
 * moments, by the program and by its libraries. Each case begins in a new execution, which has not allocated yet.
 */
#define _GNU_SOURCE
#include "../cases.h"
#include "atfork.h"

#include <dlfcn.h>
#include <fcntl.h>
#ifdef __GLIBC__
#include <gnu/libc-version.h>
#endif
#include <pthread.h>
#include <pty.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { THREADS = 3, FORKS = 40 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, second = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t nested = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static _Atomic bool stop;

/* Allocates blocks of many classes and large ones, and frees them. */
static void allocate(unsigned seed)
{
    unsigned char *p[40];
    for (unsigned i = 0; i < 40; i++) {
        size_t size = (seed * 131 + i * 2707) % 90000 + 1;
        must(p[i] = malloc(size));
        p[i][0] = p[i][size - 1] = (unsigned char)i;
    }
    for (unsigned i = 0; i < 40; i++) {
        must(p[i][0] == i);
        free(p[i]);
    }
}

static void *allocate_under(void *lock)
{
    for (unsigned i = 0; !stop; i++) {
        must(pthread_mutex_lock(lock) == 0);
        allocate(i);
        must(pthread_mutex_unlock(lock) == 0);
        sched_yield(); /* let the others have the mutex */
    }
    return NULL;
}

/* Returns in the parent when the child, which allocates, has ended. */
static void fork_once(unsigned seed)
{
    pid_t pid = fork();
    must(pid >= 0);
    if (pid == 0) {
        allocate(seed);
        _exit(0);
    }
    must_succeed(pid);
}

/* Forks many times while threads allocate under the lock. */
static void fork_under(pthread_mutex_t *lock)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        must(pthread_create(&threads[i], NULL, allocate_under, lock) == 0);
    for (unsigned i = 0; i < FORKS; i++)
        fork_once(i);
    stop = true;
    for (int i = 0; i < THREADS; i++)
        must(pthread_join(threads[i], NULL) == 0);
}

static void lock_mutex(void)
{
    must(pthread_mutex_lock(&mutex) == 0);
}

static void unlock_mutex(void)
{
    must(pthread_mutex_unlock(&mutex) == 0);
}

/* ---- registered before the first allocation ---- */

CASE_ANEW(registered_before_the_first_allocation)
{
    must(pthread_atfork(lock_mutex, unlock_mutex, unlock_mutex) == 0);
    fork_under(&mutex);
}

static bool constructed;

/* The last argument of the program, without an allocation. */
static bool has_last_argument(const char *word)
{
    char all[4096];
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, all, sizeof(all)) : -1, length = (ssize_t)strlen(word) + 1;
    close(fd);
    return n > length && !all[n - length - 1] && strcmp(all + n - length, word) == 0;
}

/* Runs before constructors without a priority. */
__attribute__((constructor(101))) static void early(void)
{
    constructed = has_last_argument("registered_by_a_constructor");
    if (constructed)
        must(pthread_atfork(lock_mutex, unlock_mutex, unlock_mutex) == 0);
}

CASE_ANEW(registered_by_a_constructor)
{
    must(constructed);
    fork_under(&mutex);
}

/* The process has one thread and no memory from malloc before, in, and after its first fork. */
CASE_ANEW(fork_before_the_first_allocation)
{
    must(pthread_atfork(lock_mutex, unlock_mutex, unlock_mutex) == 0);
    pid_t pid = fork();
    must(pid >= 0);
    if (pid > 0)
        must_succeed(pid);
    fork_under(&mutex);
    if (pid == 0)
        _exit(0);
}

/* ---- a prepare handler that waits for an allocation of another thread ---- */

static _Atomic unsigned asked, answered;

static void *answer(void *unused)
{
    while (!stop)
        if (answered != asked) {
            allocate(asked);
            answered++;
        } else {
            sched_yield();
        }
    return unused;
}

static void ask(void)
{
    asked++;
    while (answered != asked)
        sched_yield();
}

CASE_ANEW(a_handler_waits_for_an_allocation)
{
    must(pthread_atfork(ask, NULL, NULL) == 0);
    pthread_t thread;
    must(pthread_create(&thread, NULL, answer, NULL) == 0);
    for (unsigned i = 0; i < 20; i++)
        fork_once(i);
    stop = true;
    must(pthread_join(thread, NULL) == 0);
}

/* ---- handlers registered twice, and those of two mutexes ---- */

static void lock_nested(void)
{
    must(pthread_mutex_lock(&nested) == 0);
}

static void unlock_nested(void)
{
    must(pthread_mutex_unlock(&nested) == 0);
}

/* The child's thread has another number, so that it is not the owner of a recursive mutex. */
static void renew_nested(void)
{
    nested = (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
}

static void lock_second(void)
{
    must(pthread_mutex_lock(&second) == 0);
}

static void unlock_second(void)
{
    must(pthread_mutex_unlock(&second) == 0);
}

CASE_ANEW(registered_twice)
{
    must(pthread_atfork(lock_nested, unlock_nested, renew_nested) == 0);
    must(pthread_atfork(lock_mutex, unlock_mutex, unlock_mutex) == 0);
    allocate(1);
    must(pthread_atfork(lock_second, unlock_second, unlock_second) == 0);
    must(pthread_atfork(lock_nested, unlock_nested, renew_nested) == 0);
    pthread_t threads[2];
    must(pthread_create(&threads[0], NULL, allocate_under, &nested) == 0);
    must(pthread_create(&threads[1], NULL, allocate_under, &second) == 0);
    fork_under(&mutex);
    must(pthread_join(threads[0], NULL) == 0);
    must(pthread_join(threads[1], NULL) == 0);
}

static void nothing(void) {}

/* ---- handlers that allocate, fork, and register further handlers ---- */

#ifdef __GLIBC__ /* musl holds the lock of its list while they run */

static int depth; /* calls of the busy handlers in progress; only the forking thread calls them */
static unsigned registered;

static void be_busy(void)
{
    if (depth++ == 0) { /* not in the fork below */
        allocate(7);
        if (registered++ % 16 == 0)
            must(pthread_atfork(nothing, nothing, nothing) == 0);
        fork_once(9);
        allocate(8);
    }
    depth--;
}

/* The child's handler of the mutex has to run before one that forks. */
CASE_ANEW(handlers_that_allocate_fork_and_register)
{
    if (strverscmp(gnu_get_libc_version(), "2.36") < 0)
        _exit(CASE_SKIPPED); /* fork() holds the lock of the list while they run, as musl does, without Sheaf too */
    must(pthread_atfork(be_busy, be_busy, NULL) == 0);
    must(pthread_atfork(lock_nested, unlock_nested, renew_nested) == 0);
    allocate(1);
    must(pthread_atfork(be_busy, be_busy, be_busy) == 0);
    fork_under(&nested);
}

#else

NEEDS_GLIBC(handlers_that_allocate_fork_and_register)

#endif

/* ---- streams ---- */

static void flush(void)
{
    fflush(NULL);
}

static void *write_much(void *unused)
{
    while (!stop) {
        FILE *f = fopen("/dev/null", "w");
        must(f && fprintf(f, "%0500d", 7) == 500);
        fclose(f);
        fflush(NULL);
    }
    return unused;
}

CASE_ANEW(handlers_that_flush_streams)
{
    must(pthread_atfork(flush, flush, flush) == 0);
    must(pthread_atfork(lock_mutex, unlock_mutex, unlock_mutex) == 0);
    pthread_t thread;
    must(pthread_create(&thread, NULL, write_much, NULL) == 0);
    fork_under(&mutex);
    must(pthread_join(thread, NULL) == 0);
}

/* ---- forks inside libc ---- */

CASE_ANEW(forkpty_and_daemon)
{
    must(pthread_atfork(lock_mutex, unlock_mutex, unlock_mutex) == 0);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        must(pthread_create(&threads[i], NULL, allocate_under, &mutex) == 0);
    for (unsigned i = 0; i < 20; i++) {
        int terminal = -1;
        pid_t pid = forkpty(&terminal, NULL, NULL, NULL);
        if (pid < 0)
            _exit(CASE_SKIPPED); /* no pseudo-terminals here */
        if (pid == 0) {
            allocate(i);
            _exit(0);
        }
        must_succeed(pid);
        close(terminal);

        int ends[2];
        must(pipe(ends) == 0);
        pid = fork();
        must(pid >= 0);
        if (pid == 0) {
            must(daemon(1, 1) == 0); /* continues in a child; the caller exits with 0 */
            allocate(i);
            must(write(ends[1], "d", 1) == 1);
            _exit(0);
        }
        must_succeed(pid);
        close(ends[1]);
        char c = 0;
        must(read(ends[0], &c, 1) == 1 && c == 'd');
        close(ends[0]);
    }
    stop = true;
    for (int i = 0; i < THREADS; i++)
        must(pthread_join(threads[i], NULL) == 0);
}

/* ---- registered by a thread while another one forks: not in static programs (docs/production.md) ---- */

#ifdef LIBRARIES

/* libc's list of handlers has to grow several times, the last times to large blocks. */
enum { ROUNDS = 100, EACH = 30 };

/* Registers some handlers at each fork, when the prepare handlers run. */
static void *register_many(void *unused)
{
    for (unsigned round = 0; round < ROUNDS; round++) {
        while (asked <= round && !stop)
            sched_yield();
        for (int i = 0; i < EACH; i++)
            must(pthread_atfork(nothing, nothing, nothing) == 0);
    }
    return unused;
}

static void ask_only(void)
{
    asked++;
}

CASE_ANEW(registered_while_another_thread_forks)
{
    must(pthread_atfork(ask_only, NULL, NULL) == 0);
    pthread_t threads[2];
    must(pthread_create(&threads[0], NULL, register_many, NULL) == 0);
    must(pthread_create(&threads[1], NULL, allocate_under, &second) == 0);
    for (unsigned i = 0; i < ROUNDS; i++)
        fork_once(i);
    stop = true;
    must(pthread_join(threads[0], NULL) == 0);
    must(pthread_join(threads[1], NULL) == 0);
}

/* ---- libraries ---- */

static struct atfork_library *library(void *where)
{
    struct atfork_library *found = dlsym(where, ATFORK_LIBRARY);
    must(found);
    return found;
}

/* The constructor of a library that was loaded with the program, by name or by LD_PRELOAD, has registered. */
PART(library_registers)
{
    struct atfork_library *l = library(RTLD_DEFAULT);
#ifdef LINKED
    must(l == &atfork_library);
#endif
    int *interposed = dlsym(RTLD_DEFAULT, "atfork_interposed");
    fork_under(l->mutex);
    must(l->prepared == FORKS && l->released == FORKS);
    must(!interposed || *interposed > 0);
}

#ifdef __GLIBC__ /* musl unloads no library */

/* The handlers of a library that was closed must not run any more: its code is gone. */
CASE_ANEW(registered_by_a_library_that_is_closed)
{
    must(pthread_atfork(lock_mutex, unlock_mutex, unlock_mutex) == 0);
    must(setenv(ATFORK_LIBRARY, "1", 1) == 0);
    for (int i = 0; i < 3; i++) {
        void *handle = dlopen(getenv("LIBRARY"), RTLD_NOW | RTLD_LOCAL);
        must(handle);
        struct atfork_library *l = library(handle);
        stop = false;
        fork_under(l->mutex);
        must(l->prepared == FORKS && l->released == FORKS);
        must(dlclose(handle) == 0);
        must(!dlopen(getenv("LIBRARY"), RTLD_NOW | RTLD_NOLOAD));
        stop = false;
        fork_under(&mutex);
    }
}

#else

NEEDS_GLIBC(registered_by_a_library_that_is_closed)

#endif

/* Executes the program again with the library preloaded before or behind the other objects. */
static void preload(const char *variable, bool before)
{
    char list[4096];
    const char *one = getenv(variable), *others = getenv("LD_PRELOAD");
    must(one && setenv(ATFORK_LIBRARY, "1", 1) == 0);
    if (!others)
        others = "";
    must(snprintf(list, sizeof(list), "%s %s", before ? one : others, before ? others : one) < (int)sizeof(list));
    must(setenv("LD_PRELOAD", list, 1) == 0);
    execute_part("library_registers");
}

CASE(registered_by_an_object_preloaded_before)
{
    preload("LIBRARY", true);
}

CASE(registered_by_an_object_preloaded_behind)
{
    preload("LIBRARY", false);
}

CASE(passed_on_by_an_object_preloaded_before)
{
    preload("INTERPOSER", true);
}

CASE(passed_on_to_an_object_preloaded_behind)
{
    preload("INTERPOSER", false);
}

CASE(registered_by_a_linked_library)
{
    if (!getenv("LD_PRELOAD"))
        _exit(CASE_SKIPPED); /* that program would run on libc's malloc */
    must(setenv(ATFORK_LIBRARY, "1", 1) == 0);
    alarm(CASE_SECONDS);
    execl(getenv("LINKED"), "again", "--part", "library_registers", (char *)NULL);
    must(!"executed the program that is linked with the library");
}

#endif
