#include "diagnostics/profile/merge.h"

static bool in_loop(uint64_t pc, struct merge_loop loop)
{
    return pc - 1 - loop.begin < loop.end - loop.begin;
}

unsigned merge_loops(const struct sheaf_profile_stack *stack, struct merge_loop loop)
{
    unsigned n = 0;
    for (unsigned i = 0; i < stack->depth; i++)
        n += in_loop(stack->pcs[i], loop);
    return n;
}

/* Puts each run in the place of a frame of the loop. A part of the loop's code may lie elsewhere, and not be known
 * for it, so the outermost frame of the loop gets all runs that are left if the stack is whole. */
static unsigned merge(const struct sheaf_profile_stack *stack, struct merge_loop loop, const struct script_runs *runs,
                      uintptr_t *pcs)
{
    unsigned loops = merge_loops(stack, loop), run = 0, frame = 0, n = 0;
    for (unsigned i = 0; i < stack->depth && n < SAMPLE_DEPTH; i++) {
        unsigned begin = n;
        if (in_loop(stack->pcs[i], loop)) {
            bool last = !--loops && stack->depth < SAMPLE_DEPTH;
            for (bool more = run < runs->runs; more; more = last && run < runs->runs)
                for (unsigned k = runs->run[run++]; k; k--, frame++)
                    if (n < SAMPLE_DEPTH)
                        pcs[n++] = runs->addresses[frame];
        }
        if (n == begin)
            pcs[n++] = stack->pcs[i];
    }
    return n;
}

uint32_t merge_runs(uint32_t native, struct merge_loop loop, const struct script_runs *runs, uintptr_t *pcs)
{
    uint32_t stack = area_intern(pcs, merge(area_stack_entry(native), loop, runs, pcs));
    return stack != AREA_NO_STACK && area_stack_entry(stack)->depth ? stack : native;
}
