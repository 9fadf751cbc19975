/*
 * Functions of Python programs in stacks. Where a stack has a frame of CPython's evaluation loop, the functions that
 * this loop runs take its place (python/interpreter.h). What does not look right leaves the stack as it was.
 */
#ifndef SHEAF_PROFILE_PYTHON_H
#define SHEAF_PROFILE_PYTHON_H

#include "profile/area.h"
#include "profile/walked.h"
#include "python/interpreter.h"

static inline bool python_known(void)
{
    return unlikely(read_once(python_loop));
}

/* Replace the stack by the same one with Python's functions, if it has any, and account for the time. Any context
 * without a lock. */
void python_put(unsigned slot, struct walked_stack *found);

/* In the child of a fork: threads that read frames do not exist here. */
void python_fork_child(void);

#endif
