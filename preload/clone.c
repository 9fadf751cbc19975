/*
 * clone() as libc has it, for children that may allocate. What the flags share decides:
 *
 *   without CLONE_VM              the child is a forked process: the locks are taken and reset as by _Fork()
 *   CLONE_VM | CLONE_VFORK        the child stands in for its parent, as after vfork() (preload/vfork.h)
 *   CLONE_VM without CLONE_VFORK  a foreign thread (os/foreign.h)
 *
 * With CLONE_SETTLS the child has a thread pointer of its own. libc's layout may not lie there, so no rseq area is
 * registered for it and the child is foreign in each case. libc's own threads and posix_spawn() do not come through
 * here, nor do programs that make the system call by themselves; docs/production.md says what becomes of those.
 */
#define _GNU_SOURCE
#include "malloc/malloc.h"
#include "os/foreign.h"
#include "os/syscall.h"
#include "preload/start.h"
#include "preload/vfork.h"
#include "process/fork.h"

#include <errno.h>
#include <sched.h>
#include <stdarg.h>

/* The same function of libc by its other name. */
extern int __clone(int (*run)(void *), void *stack, int flags, void *with, ...);

struct child {
    int (*run)(void *);
    void *with;
    int flags;
    uint64_t mask;
    _Atomic uint32_t *foreign;
};

struct request {
    void *stack;
    int flags;
    pid_t *parent_number;
    void *tls;
    pid_t *child_number;
};

static int make(int (*run)(void *), struct child *child, const struct request *r)
{
    return __clone(run, r->stack, r->flags, child, r->parent_number, r->tls, r->child_number);
}

/* ---- a process of its own ---- */

/* The child has a copy of its parent's stack, so it finds *with there. */
static int begin_process(void *with)
{
    const struct child *child = with;
    start_fork_child();
    if (child->flags & CLONE_SETTLS)
        foreign_enter();
    return child->run(child->with);
}

/*
 * With CLONE_VFORK the parent could not release the locks until the child ends or executes a program. They are not
 * taken then; the child may find what another thread was changing half changed, as after the bare system call.
 */
static int clone_process(struct child *child, const struct request *r)
{
    bool locks = !(r->flags & CLONE_VFORK);
    if (locks)
        cache_fork_prepare();
    int pid = make(begin_process, child, r);
    int error = errno;
    if (locks)
        cache_fork_parent();
    errno = error;
    return pid;
}

/* ---- a child in its parent's place ---- */

/* The parent is suspended, so *with stays until the child has ended or executed a program. */
static int begin_stand_in(void *with)
{
    const struct child *child = with;
    vfork_returned(0, child->mask);
    return child->run(child->with);
}

static int clone_stand_in(struct child *child, const struct request *r)
{
    child->mask = vfork_prepare();
    int pid = make(begin_stand_in, child, r);
    return vfork_returned(pid < 0 ? -errno : pid, child->mask);
}

/* ---- a foreign thread ---- */

/* What the child starts from, in the memory that it shares; the child frees it. */
static int begin_foreign(void *with)
{
    struct child child = *(struct child *)with;
    foreign_begin(child.foreign);
    free_slow(with);
    return child.run(child.with);
}

/* What the child will read as its thread pointer. */
static uintptr_t pointer_in_child(const struct request *r)
{
    if (!(r->flags & CLONE_SETTLS))
        return (uintptr_t)__builtin_thread_pointer();
#if defined(__x86_64__)
    if (*(void **)r->tls != r->tls) /* the compiler reads it from there */
        return FOREIGN_ANY_POINTER;
#endif
    return (uintptr_t)r->tls;
}

/* The kernel clears the word at the thread's end unless the program has a word of its own for that. */
static int clone_foreign(struct child *child, struct request *r)
{
    struct child *shared = malloc_slow(sizeof(*shared));
    child->foreign = shared ? foreign_add(pointer_in_child(r)) : NULL;
    if (!child->foreign) {
        free_slow(shared);
        errno = shared ? EAGAIN : ENOMEM;
        return -1;
    }
    slot_pause_fast();
    *shared = *child;
    if (!(r->flags & (CLONE_CHILD_CLEARTID | CLONE_CHILD_SETTID))) {
        r->flags |= CLONE_CHILD_CLEARTID;
        r->child_number = (pid_t *)(void *)child->foreign;
    }
    int pid = make(begin_foreign, shared, r);
    if (pid >= 0)
        return pid;
    int error = errno;
    foreign_remove(child->foreign);
    slot_resume_fast();
    free_slow(shared);
    errno = error;
    return -1;
}

/* ---- the entry point ---- */

sheaf_export int clone(int (*run)(void *), void *stack, int flags, void *with, ...)
{
    struct child child = {.run = run, .with = with, .flags = flags};
    struct request r = {.stack = stack, .flags = flags};
    va_list rest; /* as in libc, what the caller did not pass is read but not used */
    va_start(rest, with);
    r.parent_number = va_arg(rest, pid_t *);
    r.tls = va_arg(rest, void *);
    r.child_number = va_arg(rest, pid_t *);
    va_end(rest);
    if (!run || !stack || !malloc_init())
        return __clone(run, stack, flags, with, r.parent_number, r.tls, r.child_number);
    if (!(flags & CLONE_VM))
        return clone_process(&child, &r);
    if (flags & CLONE_VFORK && !(flags & CLONE_SETTLS))
        return clone_stand_in(&child, &r);
    return clone_foreign(&child, &r);
}
