/*
 * The search for lost blocks in a copy of the running process, for a client that has stopped the other threads
 * (SHEAF_LEAKS in sheaf/control.h). The program waits only until the copy exists.
 *
 * The copy is a child as by fork(), but no handler of fork runs, its end sends no signal, and wait() does not find
 * it (only a call with __WALL or __WCLONE does). It runs nothing but the scan, takes no lock, and closes all files at
 * once, so that no pipe or socket of the program stays open because of it.
 */
#ifndef SHEAF_LEAK_SNAPSHOT_H
#define SHEAF_LEAK_SNAPSHOT_H

#include "platform/os/compiler.h"

#include "sheaf/control.h"

/* Where the client and the copy exchange what they know. In the process itself only `table` is ever set. */
extern hidden struct sheaf_leaks snapshot_leaks;

/*
 * Make a copy that has a table of that many words. Returns its number, or a negative error number. To be called by
 * the helper thread alone, with no lock held.
 */
long snapshot_make(uint64_t words);

/*
 * Whether another thread holds a lock of the allocator. A block may then be in none of the forms that the scan knows:
 * while it is allocated or freed, it may be but the number of a slice or a bit in a register.
 */
bool snapshot_would_blur(void);

/* Whether a copy was made and not reaped yet, as far as this thread knows. No system call. */
bool snapshot_known(void);

/* Whether there is a copy. A copy that has ended is reaped. Any context. */
bool snapshot_exists(void);

/* To be called in the child of a fork, whose parent has the copy. */
void snapshot_fork_child(void);

#endif
