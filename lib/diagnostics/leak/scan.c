#include "diagnostics/leak/scan.h"
#include "diagnostics/leak/roots.h"

static bool forked;

void scan_fork_child(void)
{
    if (!forked) /* or its page would be copied */
        forked = true;
}

enum scan_failure scan_reach(struct scan *scan, const struct world *world, uint32_t origin)
{
    struct mark *mark = &scan->mark;
    if (!maps_read(&scan->maps, origin))
        return SCAN_NO_PROC;
    bool done = heap_read(&scan->heap) && mark_begin(mark, &scan->heap, &scan->maps) &&
                heap_take_out_kept(&scan->heap, mark_range, mark) && roots_mark(mark, world, forked);
    return done ? SCAN_DONE : SCAN_NO_MEMORY;
}
