#define _GNU_SOURCE
#include "os/foreign.h"
#include "os/syscall.h"

#include <errno.h>
#include <signal.h>

_Atomic uint32_t foreign_threads;

#define MOST     256
#define STARTING UINT32_MAX /* more than any thread number */

/*
 * An entry is taken from foreign_add() until a sweep finds that its thread has ended, and `thread` is then 0. The
 * kernel stores that 0 at any time, so `taken` is a word of its own.
 */
static large_table struct {
    _Atomic uint32_t thread; /* its number, STARTING, or 0 */
    _Atomic uint32_t taken;
    _Atomic uintptr_t pointer; /* its thread pointer */
} entries[MOST];
static _Atomic uint32_t entries_end; /* no entry from here on was ever taken */

static uint32_t own_number(void)
{
    return (uint32_t)sys_call3(SYS_gettid, 0, 0, 0);
}

/*
 * A system call is needed only where the thread pointer does not tell. An entry whose thread is starting is of
 * another thread: a foreign thread stores its number before it calls anything that looks here.
 */
bool foreign_look(void)
{
    uintptr_t pointer = (uintptr_t)__builtin_thread_pointer();
    uint32_t self = 0, end = atomic_load_explicit(&entries_end, memory_order_relaxed);
    for (uint32_t i = 0; i < end; i++) {
        uintptr_t known = atomic_load_explicit(&entries[i].pointer, memory_order_relaxed);
        if ((known != pointer && known != FOREIGN_ANY_POINTER) ||
            !atomic_load_explicit(&entries[i].thread, memory_order_relaxed))
            continue;
        self = self ? self : own_number();
        if (atomic_load_explicit(&entries[i].thread, memory_order_relaxed) == self)
            return true;
    }
    return false;
}

uint64_t foreign_self(void)
{
    return 1ull << 63 | (uint64_t)own_number() << 4; /* the low bits are those of a lock */
}

static void raise_end(uint32_t end)
{
    uint32_t seen = atomic_load(&entries_end);
    while (seen < end && !atomic_compare_exchange_weak(&entries_end, &seen, end)) {
    }
}

_Atomic uint32_t *foreign_add(uintptr_t pointer)
{
    for (int try = 0; try < 2; try++) {
        for (unsigned i = 0; i < MOST; i++) {
            uint32_t none = 0;
            if (!atomic_compare_exchange_strong(&entries[i].taken, &none, 1))
                continue;
            atomic_store(&entries[i].pointer, pointer);
            atomic_store(&entries[i].thread, STARTING);
            raise_end(i + 1);
            atomic_fetch_add(&foreign_threads, 1);
            return &entries[i].thread;
        }
        foreign_sweep(true);
    }
    return NULL;
}

void foreign_begin(_Atomic uint32_t *word)
{
    atomic_store(word, own_number());
}

void foreign_remove(_Atomic uint32_t *word)
{
    atomic_store(word, 0);
    foreign_sweep(false);
}

/* Signal 0 only asks whether there is such a thread. A thread of another user exists as well. */
static bool has_ended(uint32_t thread)
{
    return thread != STARTING && sys_call3(SYS_tkill, (long)thread, 0, 0) == -ESRCH;
}

/* Two threads may sweep at once; the one that exchanges `taken` counts. */
bool foreign_sweep(bool probe)
{
    for (unsigned i = 0; i < atomic_load(&entries_end); i++) {
        if (!atomic_load(&entries[i].taken))
            continue;
        uint32_t thread = atomic_load(&entries[i].thread), taken = 1;
        if (thread && probe && has_ended(thread))
            atomic_compare_exchange_strong(&entries[i].thread, &thread, 0);
        if (!atomic_load(&entries[i].thread) && atomic_compare_exchange_strong(&entries[i].taken, &taken, 0))
            atomic_fetch_sub(&foreign_threads, 1);
    }
    return !atomic_load(&foreign_threads);
}

void foreign_fork_child(bool stays)
{
    for (unsigned i = 0; i < atomic_load(&entries_end); i++)
        if (atomic_load(&entries[i].taken)) { /* a write would copy the page */
            atomic_store(&entries[i].thread, 0);
            atomic_store(&entries[i].taken, 0);
        }
    atomic_store(&foreign_threads, 0);
    _Atomic uint32_t *word = stays ? foreign_add(FOREIGN_ANY_POINTER) : NULL;
    if (word)
        foreign_begin(word);
}
