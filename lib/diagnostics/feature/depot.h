/*
 * The depot stores each call stack once and identifies it by a 32-bit reference.
 *
 * An entry is written before it is linked by one compare-and-swap. It is never removed, and nothing in it changes
 * but live_bytes and live_count, which only the report of live objects uses. So there is no lock. Two threads that
 * add the same new stack at once may store it twice, which only wastes space. A forked child has a copy.
 */
#ifndef SHEAF_FEATURE_DEPOT_H
#define SHEAF_FEATURE_DEPOT_H

#include "platform/os/compiler.h"
#include "platform/os/stack.h"

struct depot_stack {
    uint32_t next;  /* reference of the next entry with the same hash chain; 0: none */
    uint32_t depth; /* of pcs */
    uint64_t hash;
    uint64_t live_bytes, live_count; /* summed up by diagnostics/feature/debug_walk.c */
    uintptr_t pcs[];
};

/* Store the stack of the allocator's caller. Returns its reference; 0 if there is no memory for it or it is not
 * known. */
uint32_t depot_here(void);

/* The stack with this reference; NULL for 0. */
struct depot_stack *depot_stack(uint32_t reference);

/* Visit all stacks; those that are added meanwhile may be missed. */
void depot_each(void (*visit)(struct depot_stack *stack, void *with), void *with);

#endif
