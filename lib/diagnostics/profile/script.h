/*
 * Functions of interpreted programs in stacks. Where a stack has a frame of an interpreter's loop, the functions that
 * this loop runs take its place (diagnostics/python/interpreter.h, diagnostics/ruby/interpreter.h). JavaScript has a
 * frame for each function, and its name takes the place of the code (diagnostics/v8/engine.h). What does not look
 * right leaves the stack as it was.
 */
#ifndef SHEAF_PROFILE_SCRIPT_H
#define SHEAF_PROFILE_SCRIPT_H

#include "diagnostics/profile/walked.h"
#include "diagnostics/python/interpreter.h"
#include "diagnostics/ruby/interpreter.h"
#include "diagnostics/v8/engine.h"

static inline bool script_running(void)
{
    return unlikely(read_once(python_loop) || read_once(ruby_loop) || read_once(v8_running));
}

/* Whether script_put() needs the frames. */
static inline bool script_compiled(void)
{
    return unlikely(read_once(v8_running));
}

/* A module of the process, which may be an interpreter. One caller at a time. */
static inline void script_examine(const struct sheaf_profile_module *module)
{
    python_examine(module);
    ruby_examine(module);
    v8_examine(module);
}

/* Replace the stack by the same one with the program's functions, if it has any, and account for the time. Any
 * context without a lock. */
void script_put(unsigned slot, struct walked_stack *found, const struct walked_frames *frames);

/* In the child of a fork: threads that read frames do not exist here. */
void script_fork_child(void);

#endif
