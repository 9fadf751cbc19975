/*
 * Lost blocks in groups: those that were allocated by the same call stack, or, where no stack is known, those of the
 * same cache, or large blocks of the same size.
 */
#ifndef SHEAF_LEAK_GROUPS_H
#define SHEAF_LEAK_GROUPS_H

#include "diagnostics/leak/mark.h"
#include "platform/os/stack.h"

struct group {
    uint64_t key;      /* what its blocks have in common */
    const char *cache; /* its name; NULL: the blocks are of several caches */
    uint64_t blocks, bytes;
    struct lost_with with;
    uint32_t depth; /* of the stack */
    uintptr_t pcs[STACK_MOST];
};

struct groups {
    struct group *all; /* by bytes, those lost with a group's blocks included, the most first */
    uint32_t count, most;
    uint32_t *index; /* a hash table of 1 + places in `all` */
    uint32_t mask;
    uint64_t blocks, bytes; /* lost by themselves */
    struct lost_with with;  /* lost with them */
    struct lost_with reached;
};

/* Make the groups; returns false if there is no memory for them. The marks are final. */
bool groups_make(struct groups *groups, const struct mark *mark);

#endif
