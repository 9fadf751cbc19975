/*
 * Stacks that were walked lately, so that most samples need no walk.
 *
 * A program that allocates much does so from few stacks. Each slot remembers some of them: where on the stack their
 * return addresses lay, and which ones these were. A stack that has the same addresses at the same places is taken
 * for the same. Each place is read only after all inner ones agreed: the next frame then lies where it lay before,
 * unless a function between them has a frame of variable size, and even then the place is on the stack of that
 * thread. A full walk at every WALKED_TRUST-th use finds stacks that are alike by accident.
 *
 * A return address lies at a known place on x86-64 alone. Elsewhere, and where the allocator is linked into the
 * program, every stack is walked.
 *
 * Any context without a lock; a thread that finds its slot's stacks in use by another one walks.
 */
#ifndef SHEAF_PROFILE_WALKED_H
#define SHEAF_PROFILE_WALKED_H

#include "diagnostics/profile/area.h"
#include "diagnostics/profile/pace.h"

#define WALK_MOST_NS 50000 /* a preemption within a walk is not its cost */

struct walked_stack {
    uint32_t stack;   /* see area_intern() */
    unsigned thinned; /* one of 2^thinned samples of this stack is taken */
    bool taken;       /* false: this one is left out */
    uint32_t walk_ns; /* time of a walk; 0: none was needed */
};

/* The frame pointers of the functions in a stack; 0 where they are not known. */
struct walked_frames {
    unsigned n;
    uintptr_t pointers[SAMPLE_DEPTH];
};

/* The stack of the caller. `always`: it is never left out. `frames` may be NULL. */
struct walked_stack walked_find(unsigned slot, bool always, uint32_t now, struct walked_frames *frames);

/* In the child of a fork: threads that used the tables do not exist here. */
void walked_fork_child(void);

/* Set the tables up unless that is done. Without memory for them, every stack is walked. */
void walked_start(void);

#endif
