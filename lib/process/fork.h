/* fork() at any moment. */
#ifndef SHEAF_PROCESS_FORK_H
#define SHEAF_PROCESS_FORK_H

#include "platform/os/lock.h"

/* hooks.may_wait: whether the calling thread holds no lock that follows this one in the lock order. */
bool fork_may_wait(const struct lock *lock);

/* To be called before fork(), and after it in the parent and in the child. Signals are blocked and all locks are
 * held in between. Safe in signal handlers. */
void cache_fork_prepare(void);
void cache_fork_parent(void);
void cache_fork_child(void);

/*
 * To be called in the child before cache_fork_child() if the parent could not call cache_fork_prepare(). `parent` is
 * lock_self() of the thread that made the child.
 */
void cache_fork_unprepared(uint64_t parent);

#endif
