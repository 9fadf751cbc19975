/*
 * The helper thread returns memory while the program is idle. It starts when there may be memory worth returning,
 * and ends when nothing is left to do. In a process with a record it starts in any case and stays, asleep until a
 * client rings (process/bell.h), to answer clients (sheaf/control.h). docs/rest.md says what a program could notice
 * of it.
 *
 * It starts in two steps. Slow paths check from time to time and set helper_wanted. The next malloc() or free()
 * that misses the fast path creates the thread, at its very beginning, because only there the caller is known:
 * libc frees a thread's data while it holds the lock of its list of stacks, which pthread_create() takes too.
 */
#ifndef SHEAF_PROCESS_HELPER_H
#define SHEAF_PROCESS_HELPER_H

#include "platform/config/config.h"
#include "platform/os/compiler.h"

extern hidden _Atomic bool helper_wanted;

/* The longest sleep of a thread that waits for clients: so often the record says that the process is alive. */
#define HELPER_SLEEP_MS 300000u

/*
 * Children that stand in for their parents (vfork(), preload/vfork.c). One that starts a thread leaves libc with a
 * thread that ends when the child executes a program, unnoticed.
 */
extern hidden _Atomic uint32_t helper_barred;

/* Set where the thread could deadlock in libc, as in static programs (preload/start.c); its option cannot change. */
extern hidden bool helper_impossible;

/* In glibc 2.32 and later; with an older one HELPER_AUTO starts no thread. */
extern char __libc_single_threaded __attribute__((weak));

/* Whether the process has or had several threads. musl does not tell: there it is when two of them have been in slow
 * paths (helper_poll()). */
#ifdef __GLIBC__
#define HELPER_COUNTS false
static inline bool helper_sees_several(void)
{
    return &__libc_single_threaded && !__libc_single_threaded;
}
#else
#define HELPER_COUNTS true /* helper_poll() has to be called anyway */
extern hidden _Atomic bool helper_saw_several;
static inline bool helper_sees_several(void)
{
    return atomic_load_explicit(&helper_saw_several, memory_order_relaxed);
}
#endif

/* Whether the process may have a helper thread: by option, or because it has or had several threads. */
static inline bool helper_may(void)
{
    if (sheaf_config.helper == HELPER_AUTO)
        return helper_sees_several();
    return sheaf_config.helper == HELPER_ON;
}

/* Called by one slow path in 32: has the thread started, or woken, if there is memory worth returning, and started if
 * there is a record. */
void helper_poll(void);

/* Have the thread started by the next slow path, if the user wants one in any case. */
void helper_at_once(void);

/* To be called by the main thread, in a process with a record and its forked children: notes when this thread ends.
 */
void helper_note_main(void);

/*
 * End the thread, wait until the system does not count it any more, and start none until helper_return() is called
 * with the result. A request that the thread is doing is finished first; the wait ends after a second.
 */
bool helper_leave(void);
void helper_return(bool was);

/* Start no thread any more if the program itself has only one: it has entered a sandbox that may kill for a second.
 */
void helper_never(void);

/* Start the thread if that is safe for this caller of malloc() or free(). No lock may be held. */
void helper_start(const void *caller);

/* To be called in the child of a fork, which does not have the thread. */
void helper_forget(void);

/* One round of the thread, called by the thread and by tests. Returns whether the thread should go on. */
struct helper_view {
    uint64_t calls, in_use, warm; /* slow paths so far, slices */
};
struct helper_rounds {
    struct helper_view before;
    unsigned quiet; /* consecutive rounds with few slow paths */
    unsigned still; /* consecutive rounds in which hardly any memory came or went */
};
bool helper_round(struct helper_rounds *rounds);

#endif
