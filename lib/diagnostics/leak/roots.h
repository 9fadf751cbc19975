/*
 * Where references are looked for: every mapping of the process that can be read and written, and private ones that
 * can only be read but were written to before (libc and programs protect data that stay as they are). That includes
 * the data of all modules, stacks, thread-local data, and whatever the program has mapped, such as the arenas of
 * other allocators.
 *
 * Left out are memory of the allocator's own, blocks of the heap (they count once they are reached), the part of a
 * stack that is not in use, stacks of threads that have ended, devices, and the tables of the scan.
 */
#ifndef SHEAF_LEAK_ROOTS_H
#define SHEAF_LEAK_ROOTS_H

#include "diagnostics/leak/mark.h"
#include "diagnostics/leak/world.h"

/*
 * Mark what the roots refer to. `forked`: this process began as a forked child, where the stacks of the parent's
 * other threads count as in use, because what only they refer to was not lost by this process. Returns false if there
 * is no memory.
 */
bool roots_mark(struct mark *mark, const struct world *world, bool forked);

#endif
