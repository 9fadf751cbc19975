/*
 * Functions of Python programs in stacks. Where a stack has a frame of CPython's evaluation loop, the functions that
 * this loop runs take its place, from the interpreter's own frames. CPython 3.11 to 3.13, with a GIL.
 *
 * malloc() may be called while the interpreter changes what is read here, and by a signal handler at any point of it.
 * So everything is read by peek() (os/peek.h), nothing is written, no function of the interpreter is called but those
 * that return the thread's state, and what does not look right leaves the stack as it was.
 */
#ifndef SHEAF_PROFILE_PYTHON_H
#define SHEAF_PROFILE_PYTHON_H

#include "profile/area.h"
#include "profile/walked.h"

/* The evaluation loop; 0 until a stack had a frame of an interpreter that is known. */
extern hidden uintptr_t python_loop;

static inline bool python_known(void)
{
    return unlikely(read_once(python_loop));
}

/* A module that is new in the area: it may be the interpreter. Needs LOCK_PROFILE. */
void python_look(const struct sheaf_profile_module *module);

/* Replace the stack by the same one with Python's functions, if it has any, and account for the time. Any context
 * without a lock. */
void python_put(unsigned slot, struct walked_stack *found);

/* In the child of a fork: threads that read frames do not exist here. */
void python_fork_child(void);

#endif
