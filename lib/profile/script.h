/*
 * Functions of interpreted programs in stacks. Where a stack has a frame of an interpreter's loop, the functions that
 * this loop runs take its place (python/interpreter.h, ruby/interpreter.h). What does not look right leaves the stack
 * as it was.
 */
#ifndef SHEAF_PROFILE_SCRIPT_H
#define SHEAF_PROFILE_SCRIPT_H

#include "profile/walked.h"
#include "python/interpreter.h"
#include "ruby/interpreter.h"

static inline bool script_running(void)
{
    return unlikely(read_once(python_loop) || read_once(ruby_loop));
}

/* A module of the process, which may be an interpreter. One caller at a time. */
static inline void script_look(const struct sheaf_profile_module *module)
{
    python_look(module);
    ruby_look(module);
}

/* Replace the stack by the same one with the program's functions, if it has any, and account for the time. Any
 * context without a lock. */
void script_put(unsigned slot, struct walked_stack *found);

/* In the child of a fork: threads that read frames do not exist here. */
void script_fork_child(void);

#endif
