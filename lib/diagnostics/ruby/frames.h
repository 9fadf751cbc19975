/* Frames of the Ruby functions that run in a thread. Those of functions in C are left out: they are on its stack. */
#ifndef SHEAF_RUBY_FRAMES_H
#define SHEAF_RUBY_FRAMES_H

#include "diagnostics/ruby/interpreter.h"
#include "diagnostics/script/runs.h"

#include <sys/uio.h>

/* A frame: its instruction sequence, what this consists of, and the instruction that runs. */
struct ruby_frame {
    uintptr_t sequence, body, at;
};

/* Frames, the innermost first. */
struct ruby_frames {
    long self; /* of peek_self() */
    struct script_runs runs;
    struct ruby_frame frames[SCRIPT_FRAMES];
    unsigned char bytes[SCRIPT_FRAMES * 64]; /* of control frames */
    uintptr_t flags[SCRIPT_FRAMES], heads[SCRIPT_FRAMES][3];
    struct iovec to[2 * SCRIPT_FRAMES], from[2 * SCRIPT_FRAMES]; /* of a copy; the stack may be small */
};

/* Find the frames of the calling thread, in a structure whose `self` is set. Returns false if there are none, or if
 * they cannot be read now. */
bool ruby_read_frames(const struct ruby *ruby, struct ruby_frames *frames);

#endif
