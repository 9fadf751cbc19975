/*
 * All locks, in one place: fork takes every one of them, and each page that it writes is copied, once in the
 * parent and once in the child. The locks of malloc's caches and those that precede them in the order occupy 2
 * KiB.
 *
 * A lock's number is that of its cache; the numbers below CACHE_FIRST belong to the other locks. The lock order is
 * the order of numbers. Locks whose numbers are 32 apart share a cache line, so that neighbouring size classes do
 * not.
 */
#ifndef SHEAF_SPACE_LOCKS_H
#define SHEAF_SPACE_LOCKS_H

#include "os/lock.h"
#include "space/space.h"

enum {
    LOCK_SETUP,    /* initialization and the assignment of cache numbers; first in the order */
    LOCK_TAKEOVER, /* the sheaves of other slots */
    LOCK_REGION,   /* arenas, the table of units, and the dirty bits of runs that are not in use */
    LOCK_FORKER,   /* never taken: its word names the thread that forks (process/fork.c) */
};

#define LOCK_LINES 32
#define LOCK_SHARE 4 /* locks in a cache line */
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
