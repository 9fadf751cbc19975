/* The interpreter's frames of the calling thread, and where its structures have what is read of them. */
#ifndef SHEAF_PROFILE_PYTHON_FRAMES_H
#define SHEAF_PROFILE_PYTHON_FRAMES_H

#include "os/compiler.h"

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
};

#define PYTHON_FRAMES 64
#define PYTHON_RUNS   64
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

/* Frames, the innermost first, in runs: the frames of one call of the evaluation loop. */
struct python_frames {
    long self; /* of peek_self() */
    unsigned n, runs, oldest;
    struct python_frame frames[PYTHON_FRAMES];
    uint8_t run[PYTHON_RUNS]; /* the number of frames in each */
    struct python_window windows[2];
};

/* Find the frames of the calling thread, in a structure whose `self` is set. Returns false if there are none, or if
 * they cannot be read now. */
bool python_read_frames(const struct python *python, struct python_frames *frames);

#endif
