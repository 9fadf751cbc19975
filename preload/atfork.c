/*
 * The handlers of fork(), which prepare last and release first.
 *
 * fork() runs prepare handlers in the reverse order of their registration, and the others in that order. A program's
 * prepare handler may take a mutex under which its threads allocate. If Sheaf prepared before that handler, it would
 * hold its locks while the handler waits for the mutex, and the mutex's owner may wait for those locks in malloc().
 * glibc's malloc is safe because fork() itself takes its locks, after all handlers. Handlers of Sheaf's are as safe
 * if they are registered before all others. The first allocation is too late for that: programs and libraries may
 * register handlers before it, in constructors for example.
 *
 * Therefore __register_atfork(), which pthread_atfork() calls, is exported here. Its first call registers Sheaf's
 * handlers before the caller's. The first allocation registers them if nothing else did before, for fork() is also
 * called by functions of libc (daemon(), forkpty()), which do not call an exported fork().
 *
 * Order of locks: those that the program's handlers take, stdio's lock of the list of streams, Sheaf's locks, and
 * what fork() takes after all handlers. With glibc's malloc the order is the same. fork() takes, after Sheaf's locks,
 *
 * - the lock of the list of streams again. It is recursive;
 * - the lock of the names of services (nsswitch), under which nothing is allocated;
 * - from glibc 2.36 on the lock of the list of handlers, which is free while handlers run. Registration holds it, and
 *   allocates when the list of 48 handlers is full. __register_atfork() below keeps that away from fork().
 *
 * Before glibc 2.36 fork() holds the lock of the list of handlers while they run, so it precedes Sheaf's locks
 * in both cases.
 *
 * Several threads may fork at once. One that waits for a lock of the program in a prepare handler holds none of
 * Sheaf's. A prepare handler that forks does so before the outer fork has taken Sheaf's locks, and handlers of
 * parent and child run after these locks are free, so they may allocate, fork, and register further handlers.
 */
#define _GNU_SOURCE
#include "cache/kmem_cache.h"
#include "platform/config/config.h"
#include "diagnostics/leak/scan.h"
#include "diagnostics/leak/snapshot.h"
#include "platform/os/libc.h"
#include "platform/os/stack.h"
#include "preload/libc.h"
#include "preload/record.h"
#include "preload/start.h"
#include "preload/streams.h"
#include "process/fork.h"
#include "process/helper.h"
#include "memory/space/locks.h"

#include <errno.h>
#include <string.h>
#ifdef __GLIBC__
#include <gnu/libc-version.h>
#endif

extern hidden void *__dso_handle;

#ifdef __GLIBC__
typedef int register_function(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *handle);
extern register_function __register_atfork;
#endif

void start_fork_child(void)
{
    cache_fork_child();
#ifdef SHEAF_STATIC
    atomic_store(&stack_state, STACK_NONE); /* another thread may have held the unwinder's lock */
#else
    libc_fork_child();
#endif
    if (sheaf_config.record)
        record_fork_child();
    scan_fork_child();
    snapshot_fork_child();
}

#ifdef __GLIBC__

/*
 * fork() takes stdio's lock of the list of streams after the handlers, hence after Sheaf's locks. A thread in
 * fflush(NULL) may hold it and wait for a stream whose owner is in malloc and waits for Sheaf. glibc avoids this by
 * taking its own malloc's locks last. Here the lock of the list is taken before Sheaf's. It still follows the locks
 * of the program's handlers, as it does in fork(), so the handlers may use streams. Weak: a libc without these
 * functions has no such order.
 */
extern void _IO_list_lock(void) __attribute__((weak));
extern void _IO_list_unlock(void) __attribute__((weak));
extern void _IO_list_resetlock(void) __attribute__((weak));
static bool streams_locked; /* with _IO_list_lock() */

static void lock_streams(void)
{
    bool alone = &__libc_single_threaded && __libc_single_threaded;
    bool lock = !alone && &_IO_list_lock && &_IO_list_unlock && &_IO_list_resetlock;
    if (lock)
        _IO_list_lock();
    if (streams_locked != lock) /* fork writes nothing else in this page */
        streams_locked = lock;
}

static void unlock_streams(void)
{
    if (streams_locked)
        _IO_list_unlock();
}

static void renew_streams(void)
{
    if (streams_locked)
        _IO_list_resetlock(); /* as fork() itself has done */
}

#elif !defined(SHEAF_STATIC)

/* musl does not offer its lock of the list, so one of Sheaf's own stands in front of it. */
#define lock_streams()   streams_lock()
#define unlock_streams() streams_unlock()
#define renew_streams()  streams_renew()

#else

/* A static program may deadlock as shown (docs/platforms.md). */
static void lock_streams(void) {}
static void unlock_streams(void) {}
static void renew_streams(void) {}

#endif

static bool not_started; /* Sheaf had not started when the fork was prepared */

/*
 * Where Sheaf has not started there is nothing to lock: either there is one thread, or Sheaf steps aside
 * (preload/names.h).
 */
static void fork_prepare(void)
{
    if (not_started == cache_layer_ready)
        not_started = !cache_layer_ready;
    if (not_started)
        return;
    lock_streams();
    cache_fork_prepare();
}

static void fork_parent(void)
{
    if (not_started)
        return;
    cache_fork_parent();
    unlock_streams();
}

static void fork_child(void)
{
    if (not_started)
        return;
    start_fork_child();
    renew_streams();
}

/*
 * No two threads get here at once: the handlers are registered before there is a second thread, with glibc because
 * pthread_create() allocates, and with musl by a constructor (preload/streams.c). The variable is set first, because
 * what is called may allocate, or be the function below.
 */
static bool first_call(void)
{
    static bool called;
    bool first = !called;
    called = true;
    return first;
}

#if !defined(__GLIBC__)

/*
 * musl has pthread_atfork() alone. It runs the handlers while it holds the lock of their list, and allocates their
 * entries before it takes that lock, so nothing more is needed.
 */
static int register_by_next(void (*prepare)(void), void (*parent)(void), void (*child)(void))
{
#ifdef SHEAF_STATIC
    return pthread_atfork(prepare, parent, child);
#else
    union {
        void *symbol;
        __typeof__(pthread_atfork) *call;
    } next = {.symbol = libc_symbol(RTLD_NEXT, "pthread_atfork")};
    return next.symbol ? next.call(prepare, parent, child) : ENOMEM;
#endif
}

void atfork_register(void)
{
    if (first_call())
        register_by_next(fork_prepare, fork_parent, fork_child);
}

#ifdef SHEAF_STATIC
__attribute__((section(".init_array.00000"), used)) static void (*const register_first)(void) = atfork_register;
#else
sheaf_export int pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void))
{
    atfork_register();
    return register_by_next(prepare, parent, child);
}
#endif

#elif defined(SHEAF_STATIC)

/*
 * A static program has one __register_atfork(), libc's, so Sheaf's handlers are registered by the first constructor.
 * Only functions in .preinit_array run earlier. A shared library may not have any of those, and this code may be
 * linked into one. Nothing keeps registration away from fork(), as the function below does in other programs: if one
 * thread registers more than 48 handlers while another one forks, libc may wait for ever.
 */
void atfork_register(void)
{
    if (first_call())
        __register_atfork(fork_prepare, fork_parent, fork_child, &__dso_handle);
}

__attribute__((section(".init_array.00000"), used)) static void (*const register_first)(void) = atfork_register;

#else

/* Calls the __register_atfork() behind this object, which is libc's unless another preloaded object has one. */
static noinline_cold int register_by_next(void (*prepare)(void), void (*parent)(void), void (*child)(void),
                                          void *handle)
{
    static register_function *found;
    register_function *next = __atomic_load_n(&found, __ATOMIC_RELAXED);
    if (!next) {
        union {
            void *symbol;
            register_function *call;
        } symbol = {.symbol = libc_symbol(RTLD_NEXT, "__register_atfork")};
        if (!symbol.symbol) /* a program is linked with libc first */
            symbol.symbol = libc_symbol(RTLD_DEFAULT, "__register_atfork");
        next = symbol.call != __register_atfork ? symbol.call : NULL;
        __atomic_store_n(&found, next, __ATOMIC_RELAXED); /* threads that race here write the same value */
    }
    return next ? next(prepare, parent, child, handle) : ENOMEM;
}

/*
 * A look-up by name takes 4 us at the start of a program. glibc for x86-64 has a pthread_atfork() for programs of
 * 2002, which the dynamic linker finds in less, and which calls libc's __register_atfork() directly. If another
 * object defines that name, it leads to the function below, which passes the handlers on.
 */
void atfork_register(void)
{
    if (!first_call())
        return;
    if (libc_has(pthread_atfork))
        pthread_atfork(fork_prepare, fork_parent, fork_child);
    else
        register_by_next(fork_prepare, fork_parent, fork_child, &__dso_handle);
}

/*
 * While libc's function has the lock of the list of handlers and allocates, it may wait for the locks that a fork
 * has taken, and that fork for the lock of the list. So no fork takes Sheaf's locks meanwhile: the first of them,
 * LOCK_SETUP, is held here. Its holder may allocate. Whoever has it never waits for what a thread that registers
 * handlers may hold: starts, creation and destruction of caches take only later locks, and forks take the lock of the
 * list only as shown at the top.
 *
 * Before glibc 2.36 a fork holds the lock of the list before it takes LOCK_SETUP, so LOCK_SETUP is not taken here.
 * Before the start there is one thread, and the start needs LOCK_SETUP. In a signal handler that interrupted the
 * holder, the lock is refused and held at the same time.
 */
sheaf_export noinline_cold int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void),
                                                 void *handle)
{
    atfork_register();
    if (prepare == fork_prepare)
        handle = &__dso_handle; /* not that of an object with the pthread_atfork() which was called above */
    bool lock =
        __atomic_load_n(&cache_layer_ready, __ATOMIC_ACQUIRE) && strverscmp(gnu_get_libc_version(), "2.36") >= 0;
    bool locked = lock && lock_acquire(lock_of(LOCK_SETUP));
    int error = register_by_next(prepare, parent, child, handle);
    if (locked)
        lock_release(lock_of(LOCK_SETUP));
    return error;
}

#endif
