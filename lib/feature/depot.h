/*
 * The depot: each call stack once, known by a number of 32 bits.
 *
 * Entries are written before they are linked, linked by one compare-and-swap, and never change or go away but for
 * `live`, which belongs to the report of leaks. So there is no lock; two threads that bring the same new stack at the
 * same moment may store it twice, which only costs room. After a fork the child has a copy.
 */
#ifndef SHEAF_FEATURE_DEPOT_H
#define SHEAF_FEATURE_DEPOT_H

#include "os/compiler.h"
#include "os/stack.h"

struct depot_stack {
    uint32_t next;  /* in the chain of its hash; 0: the last */
    uint32_t depth; /* of pcs */
    uint64_t hash;
    uint64_t live_bytes, live_count; /* summed up by feature/debug_walk.c */
    uintptr_t pcs[];
};

/* The stack of whoever calls the allocator; 0 when there is no memory for it. */
uint32_t depot_here(void);

/* NULL for 0. */
struct depot_stack *depot_stack(uint32_t reference);

/* All of them; those that come meanwhile may be missed. */
void depot_each(void (*visit)(struct depot_stack *stack, void *with), void *with);

#endif
