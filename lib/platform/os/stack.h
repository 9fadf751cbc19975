/*
 * The call stack as return addresses, innermost first, without the frames of this object.
 *
 * The stack is walked by libgcc's unwinder, linked in statically. It reads the unwind tables that every program
 * has, whereas a walk along frame pointers ends at the first library built without them. Code that a JIT compiler
 * made has no tables, so there the walk follows frame pointers (chain.h), where platform/arch has it. It takes no
 * lock and allocates nothing (libc's _dl_find_object finds the tables), so it may run within malloc and in signal
 * handlers. preload/libc.c says what differs with glibc before 2.35, which has no such function.
 */
#ifndef SHEAF_OS_STACK_H
#define SHEAF_OS_STACK_H

#include "platform/os/compiler.h"

#define STACK_MOST 16

/*
 * In a statically linked program libc allocates before the unwinder knows any table, and frees after it has forgotten
 * them; there the unwinder would abort the process. The first walk sorts all tables, for which it allocates while it
 * holds a lock; that allocation, and those of other threads meanwhile, get no stack. A forked child gets none at all.
 */
enum { STACK_READY, STACK_FIRST, STACK_NONE };
extern hidden _Atomic int stack_state;

/* Stores at most `most` addresses in `pcs` and returns their number; 0 if the stack cannot be walked now. */
unsigned stack_walk(uintptr_t *pcs, unsigned most);

/*
 * The same with the places of the return addresses on the stack, in words above `frame`, the frame of the caller. The
 * first `own` addresses are those of this object. Returns false where the places are not known: in a program that the
 * allocator is linked into, where a signal handler interrupted code, and beyond 256 KiB.
 */
#define STACK_PLACES     76
#define STACK_PLACE_MOST 0x7fffu
struct stack_places {
    unsigned n, own;
    uint16_t at[STACK_PLACES];
    uintptr_t pcs[STACK_PLACES];
};
bool stack_walk_places(uintptr_t frame, unsigned most, struct stack_places *places);

/* Whether an unwind table describes the code of a return address, where frame pointers are followed. */
bool stack_described(uintptr_t pc);

/* A hash for tables of stacks. */
static inline uint64_t stack_hash(const uintptr_t *pcs, unsigned depth)
{
    uint64_t hash = depth;
    for (unsigned i = 0; i < depth; i++) {
        hash = (hash ^ pcs[i]) * 0x9e3779b97f4a7c15ull;
        hash ^= hash >> 29;
    }
    return hash;
}

#ifdef SHEAF_CHECKING
/* Whether the calling thread runs a signal handler, as far as the unwinder can follow its frames. */
bool stack_in_handler(void);
#endif

#endif
