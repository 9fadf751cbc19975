/*
 * Threads that one system thread plays. Each has the stack and the thread-local data of a real thread, which was made
 * before the process of the execution was, and does not exist there. So the explored code has thread pointers, locks
 * that name their owners, and variables of its threads as in any process.
 */
#ifndef SHEAF_EXPLORE_FIBER_H
#define SHEAF_EXPLORE_FIBER_H

#include <stdint.h>

struct fiber {
    void *stack;    /* its stack pointer while it does not run */
    uintptr_t data; /* its thread pointer */
};

/* Make the real threads; once, before processes are made for executions. */
void fibers_prepare(void);

/* Let the fiber begin with `run` when it is switched to first. `n` is its number. `run` must not return. */
void fiber_begin(struct fiber *fiber, unsigned n, void (*run)(void));

/* The calling code becomes `from`, and `to` goes on. */
void fiber_switch(struct fiber *from, struct fiber *to);

/* The fiber that a process is when it begins. */
struct fiber fiber_self(void);

#endif
