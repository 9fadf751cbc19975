/*
 * The locks and their order.
 *
 * A lock has a number: that of its cache from CACHE_FIRST (cache/slot/page.h) up, below CACHE_FIRST one of the
 * enumeration. The order is that of the numbers: a thread that holds a lock may wait only for locks with larger
 * numbers. Fork takes all of them in this order. Checking builds assert the order at each lock_acquire(); lock_try()
 * never waits and is exempt.
 *
 *   lock           protects                                             may be held when the lock is taken
 *   LOCK_SETUP     the start of all layers; which numbers of user       no lock
 *                  caches are in use, and their aliases
 *   LOCK_DRAIN  ends that a remote drain has claimed; no cache is        LOCK_SETUP
 *                  destroyed while a thread holds it
 *   LOCK_REGION    arenas, bins, slices and dirty bits of spans that      LOCK_SETUP, LOCK_DRAIN
 *                  are not in use; growth of the tables of the space
 *   LOCK_PROFILE   the table of samples (diagnostics/profile/area.h)                LOCK_SETUP
 *   of a cache     the lists of the cache's slabs, their bits and       LOCK_SETUP, LOCK_DRAIN
 *                  counts
 *
 * A signal handler that interrupted the holder of a lock cannot wait for the same lock, nor for an earlier one, whose
 * holder may be a fork that waits for the interrupted thread. lock_acquire() then returns false, and the operation in
 * the handler does without the lock:
 *
 *   LOCK_SETUP     the allocator does not start, so the allocation fails; no cache is created or destroyed
 *   LOCK_DRAIN  nothing is taken over, drained or decayed, and no cache is destroyed
 *   LOCK_REGION    an allocation gets a slice of the reserve or fails; a free puts its span aside for the next
 *                  holder; a resize fails; no span is returned to the system, and no table grows
 *   LOCK_PROFILE   the allocation is not sampled; a sample that is freed is noted for the next holder
 *   of a cache     no slab is used: a request is served from elsewhere or fails, and objects that should be
 *                  flushed go to a barn
 *
 * Fork (process/fork.c) blocks signals and takes all locks but those that its thread already holds, in a handler.
 * Afterwards the parent releases what the fork took. The child resets every lock, because other holders do not exist
 * there; only those that its own thread held before the fork stay held. Ends that another thread's remote drain held
 * become 0 in the child, and their sheaves are lost.
 *
 * The locks lie together because fork writes to all of them, and each page that is written after a fork is copied, in
 * the parent and in the child. The first group, 2 KiB, has those of the enumeration and of malloc's caches. Four
 * locks whose numbers are 32 apart share a cache line, so that neighbouring size classes do not.
 */
#ifndef SHEAF_SPACE_LOCKS_H
#define SHEAF_SPACE_LOCKS_H

#include "platform/os/lock.h"
#include "memory/space/space.h"

enum {
    LOCK_SETUP,
    LOCK_DRAIN,
    LOCK_REGION,
    LOCK_FORKER, /* never taken: its word names the thread that forks (process/fork.c) */
    LOCK_PROFILE,
};

#define LOCK_LINES 32
#define LOCK_SHARE 4 /* locks in a cache line */
#define LOCK_GROUP (LOCK_LINES * LOCK_SHARE)

struct lock_group {
    struct lock locks[LOCK_LINES][LOCK_SHARE];
} cache_aligned;
_Static_assert(sizeof(struct lock) * LOCK_SHARE == 64, "four locks fill a cache line");

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
