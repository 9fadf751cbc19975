/*
 * The Python interpreter of the process: CPython 3.11 to 3.13, with a GIL.
 *
 * malloc() may be called while the interpreter changes what is read of it, and by a signal handler at any point of
 * it. So everything is read by peek() (platform/os/peek.h), nothing is written, and no function of the interpreter is
 * called but those that return the thread's state.
 */
#ifndef SHEAF_PYTHON_INTERPRETER_H
#define SHEAF_PYTHON_INTERPRETER_H

#include "platform/os/compiler.h"
#include "sheaf/profile.h"

/* Offsets in CPython's structures. They are the same in all releases of a minor version. */
struct python_layout {
    uint16_t thread;                /* PyThreadState: thread_id */
    uint16_t current, indirect;     /* the current frame: in PyThreadState, or at `indirect` - 1 of what is there */
    uint16_t code, previous, at;    /* _PyInterpreterFrame */
    uint16_t owner, entry;          /* ...; entry is 0 where frames of the loop itself mark its entries */
    uint16_t file, function, lines; /* PyCodeObject: co_filename, co_qualname, co_linetable */
    uint16_t first_line, instructions;
    uint16_t ascii, compact; /* sizes of PyASCIIObject and PyCompactUnicodeObject: their text follows */
};

/* The interpreter of the process. */
struct python {
    const struct python_layout *layout;
    uintptr_t code_type;           /* PyCode_Type */
    void *(*current_thread)(void); /* _PyThreadState_UncheckedGet(), by its name in each version */
    void *(*this_thread)(void);    /* PyGILState_GetThisThreadState() */
    uintptr_t loop_end;            /* of _PyEval_EvalFrameDefault(), which begins at python_loop */
    struct sheaf_profile_module module;
};

/* 0 until python_examine() found an interpreter; read it with acquire semantics before the rest. */
extern hidden uintptr_t python_loop;
extern hidden struct python python_found;

/* A module of the process, which may be the interpreter. One caller at a time. */
void python_examine(const struct sheaf_profile_module *module);

#endif
