/*
 * The thread that gives memory back while the program does nothing; docs/rest.md has what a program could notice of
 * it. It starts when there may be something worth giving back, and ends when there is nothing left.
 *
 * Starting is in two steps. Slow paths look now and then, and set helper_wanted. The thread is created by the next
 * malloc() or free() that misses the fast path, at its very beginning, because only there the caller is known: libc
 * frees a thread's data with the lock of its list of stacks held, which pthread_create() takes too.
 */
#ifndef SHEAF_PROCESS_HELPER_H
#define SHEAF_PROCESS_HELPER_H

#include "config/config.h"
#include "os/compiler.h"

extern hidden _Atomic bool helper_wanted;

/* glibc 2.32 and later; elsewhere nothing starts by itself. */
extern char __libc_single_threaded __attribute__((weak));

/* Whether the process may have a thread of ours: by option, or because it has several threads, or had. */
static inline bool helper_may(void)
{
    if (sheaf_config.helper == HELPER_AUTO)
        return &__libc_single_threaded && !__libc_single_threaded;
    return sheaf_config.helper == HELPER_ON;
}

/* Called now and then by slow paths: sets helper_wanted where there is something worth giving back. */
void helper_look(void);

/* Start the thread if that is safe for this caller of malloc() or free(). Not with any lock held. */
void helper_start(const void *caller);

/* In the child of a fork there is no such thread. */
void helper_forget(void);

/*
 * One round of the thread, for the thread itself and for tests. Returns whether it is to go on.
 */
struct helper_look {
    uint64_t calls, in_use, warm; /* slow paths so far, units */
};
struct helper_rounds {
    struct helper_look before;
    unsigned quiet; /* rounds in turn without much traffic */
    unsigned still; /* rounds in turn in which hardly anything came or went */
};
bool helper_round(struct helper_rounds *rounds);

#endif
