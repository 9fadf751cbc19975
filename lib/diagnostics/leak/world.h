/*
 * Stopping the other threads of the process, so that memory stands still while it is scanned.
 *
 * Each thread gets a signal whose handler waits until the scan is over. The signal frame holds the thread's registers
 * and lies on its stack, or on its alternate signal stack, where the scan finds it. The signal is a real-time signal
 * with the default action, the one that the fewest threads block; afterwards its action is the default again.
 * Threads that block it, sleep uninterruptibly or are forbidden to be signalled go on running; they are counted.
 * Interrupted system calls are restarted where the kernel can do so (SA_RESTART).
 *
 * The calling thread holds no lock of the allocator. It takes none, and calls nothing that does, until
 * world_resume(): a stopped thread may hold any lock of the allocator or of libc.
 */
#ifndef SHEAF_LEAK_WORLD_H
#define SHEAF_LEAK_WORLD_H

#include "platform/os/compiler.h"

struct world_thread {
    uint32_t id;
    bool slow;            /* it blocks the signal or sleeps uninterruptibly, and may never answer */
    bool gone;            /* it has ended, or cannot be signalled */
    _Atomic bool stopped; /* the members below are set */
    uintptr_t pointer;    /* thread pointer */
    uintptr_t low;        /* its stack below this address is not in use; 0: not known */
    uintptr_t alternate;  /* the start of its alternate signal stack; 0: none */
    uintptr_t frame, end; /* the part of the alternate stack that holds the signal frame; 0: none */
};

struct world {
    struct world_thread *threads; /* the calling thread is the first */
    _Atomic uint32_t count;
    uint32_t running; /* threads that were not stopped */
    size_t bytes;     /* of the mapping of `threads`; 0: it is not this file's */

    /* Contents of registers, where they are not on the stacks of the threads. */
    const uintptr_t *words;
    uint64_t word_count;
};

/*
 * Stop all threads but the calling one, whose stack is in use from `low` up. All signals are blocked in the calling
 * thread until world_resume(). Returns NULL, with nothing stopped, if threads cannot be listed or there is no memory.
 */
struct world *world_stop(uintptr_t low);
void world_resume(struct world *world);

/* Whether the thread pointer belongs to a stopped thread or to the calling one. */
bool world_has(const struct world *world, uintptr_t pointer);

#endif
