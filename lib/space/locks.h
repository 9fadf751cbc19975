/*
 * Where all locks lie: together, because fork takes every one of them, and a write to a page after it copies that
 * page, in the parent and in the child again. Those of malloc's caches and the locks that come before are 2 KiB.
 *
 * Numbers are those of caches; below CACHE_FIRST the others, by their order. Four whose numbers are 32 apart share a
 * cache line, so that neighbouring sizes do not.
 */
#ifndef SHEAF_SPACE_LOCKS_H
#define SHEAF_SPACE_LOCKS_H

#include "os/lock.h"
#include "space/space.h"

enum {
    LOCK_SETUP,    /* the start, and which numbers are in use; taken before all others */
    LOCK_TAKEOVER, /* the sheaves of other slots */
    LOCK_REGION,   /* the arenas, the table of units and the dirty bits of runs that are not in use */
    LOCK_FORKER,   /* never taken: its word says who forks (process/fork.c) */
};

#define LOCK_LINES 32
#define LOCK_SHARE 4 /* locks in a line */
#define LOCK_GROUP (LOCK_LINES * LOCK_SHARE)

struct lock_group {
    struct lock locks[LOCK_LINES][LOCK_SHARE];
} cache_aligned;

extern hidden struct lock_group locks_first, locks_others[CACHE_MAX / LOCK_GROUP - 1];

static inline struct lock *lock_of(unsigned number)
{
    struct lock_group *group = number < LOCK_GROUP ? &locks_first : &locks_others[number / LOCK_GROUP - 1];
    return &group->locks[number % LOCK_LINES][number / LOCK_LINES % LOCK_SHARE];
}

static inline unsigned lock_number(const struct lock *lock)
{
    size_t first = (size_t)((uintptr_t)lock - (uintptr_t)&locks_first) / sizeof(struct lock);
    size_t other = (size_t)((uintptr_t)lock - (uintptr_t)locks_others) / sizeof(struct lock);
    size_t i = first < LOCK_GROUP ? first : LOCK_GROUP + other;
    return (unsigned)(i / LOCK_GROUP * LOCK_GROUP + i % LOCK_SHARE * LOCK_LINES + i / LOCK_SHARE % LOCK_LINES);
}

#endif
