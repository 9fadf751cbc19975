/*
 * The functions that run in a thread, in runs: those of one call of the interpreter's loop, which is one frame of the
 * native stack. The innermost ones come first.
 */
#ifndef SHEAF_SCRIPT_RUNS_H
#define SHEAF_SCRIPT_RUNS_H

#include "platform/os/compiler.h"

#include <stdint.h>

#define SCRIPT_FRAMES 64
#define SCRIPT_RUNS   64

struct script_runs {
    unsigned n, runs;
    uint8_t run[SCRIPT_RUNS];           /* the number of functions in each */
    uintptr_t addresses[SCRIPT_FRAMES]; /* of script_address(); n of them */
};

/* Whether there is room for another function. */
static inline bool script_runs_room(const struct script_runs *runs)
{
    return runs->n < SCRIPT_FRAMES && runs->runs < SCRIPT_RUNS - 1;
}

/* Ends a run that began with the function `*begin`. */
static inline void script_runs_end(struct script_runs *runs, unsigned *begin)
{
    runs->run[runs->runs++] = (uint8_t)(runs->n - *begin);
    *begin = runs->n;
}

#endif
