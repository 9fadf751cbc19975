/*
 * The scan, at exit (diagnostics/leak/leak.h) and in a copy of a running process (diagnostics/leak/snapshot.h): what
 * is live, and what of it is reachable.
 */
#ifndef SHEAF_LEAK_SCAN_H
#define SHEAF_LEAK_SCAN_H

#include "diagnostics/leak/mark.h"
#include "diagnostics/leak/world.h"

struct scan {
    struct heap heap;
    struct maps maps;
    struct mark mark;
};

enum scan_failure { SCAN_DONE, SCAN_NO_PROC, SCAN_NO_MEMORY };

/*
 * Read the heap and mark what is reachable. `origin`: a thread of the process that this one is a copy of; 0: this
 * process is no copy. maps_close() must follow; the tables stay until leak_unmap_all().
 */
enum scan_failure scan_reach(struct scan *scan, const struct world *world, uint32_t origin);

/* Note that this process began as a forked child. */
void scan_fork_child(void);

#endif
