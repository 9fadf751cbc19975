/* The interpreter's frames of the calling thread. */
#ifndef SHEAF_PYTHON_FRAMES_H
#define SHEAF_PYTHON_FRAMES_H

#include "diagnostics/python/interpreter.h"
#include "diagnostics/script/runs.h"

#define PYTHON_FRAMES SCRIPT_FRAMES
#define PYTHON_WINDOW (4096 + 128)

/* Frames lie close to each other, so memory around them is read at once. */
struct python_window {
    uintptr_t from, to;
    unsigned char bytes[PYTHON_WINDOW];
};

/* A frame: its code object, and the instruction that runs. */
struct python_frame {
    uintptr_t code, at;
};

/* Frames, the innermost first. */
struct python_frames {
    long self; /* of peek_self() */
    unsigned oldest;
    struct script_runs runs;
    struct python_frame frames[PYTHON_FRAMES];
    struct python_window windows[2];
};

/* Find the frames of the calling thread, in a structure whose `self` is set. Returns false if there are none, or if
 * they cannot be read now. */
bool python_read_frames(const struct python *python, struct python_frames *frames);

#endif
