/* Stacks in which functions of an interpreted program take the place of the interpreter's loop that runs them. */
#ifndef SHEAF_PROFILE_MERGE_H
#define SHEAF_PROFILE_MERGE_H

#include "diagnostics/profile/area.h"
#include "diagnostics/script/runs.h"

/* The function that is the loop. */
struct merge_loop {
    uintptr_t begin, end;
};

/* The number of its frames in a stack. */
unsigned merge_loops(const struct sheaf_profile_stack *stack, struct merge_loop loop);

/* The stack with the functions, as area_intern() returns it; the stack as it is if they have no room. `pcs` has room
 * for SAMPLE_DEPTH addresses. */
uint32_t merge_runs(uint32_t native, struct merge_loop loop, const struct script_runs *runs, uintptr_t *pcs);

#endif
