/*
 * clone() as libc has it, for children that may allocate. What the flags share decides:
 *
 *   without CLONE_VM              the child is a forked process: the locks are taken and reset as by _Fork()
 *   CLONE_VM | CLONE_VFORK        the child stands in for its parent, as after vfork() (preload/vfork.h)
 *   CLONE_VM without CLONE_VFORK  a foreign thread (platform/os/foreign.h)
 *
 * With CLONE_SETTLS the child has a thread pointer of its own. libc's layout may not lie there, so no rseq area is
 * registered for it and the child is foreign in each case. libc's own threads and posix_spawn() do not come through
 * here, nor do programs that make the system call by themselves; docs/production.md says what becomes of those.
 */
#define _GNU_SOURCE
#include "front/malloc/malloc.h"
#include "platform/arch/arch.h"
#include "platform/os/foreign.h"
#include "platform/os/syscall.h"
#include "preload/start.h"
#include "preload/vfork.h"
#include "process/fork.h"

#include <errno.h>
#include <sched.h>
#include <stdarg.h>

typedef int clone_function(int (*run)(void *), void *stack, int flags, void *argument, ...);
#ifdef __GLIBC__
extern clone_function __clone; /* the same function of libc by its other name */
#define libc_clone() __clone
#elif defined(SHEAF_STATIC)
extern hidden clone_function __clone; /* what musl's clone() calls; it returns an error as a negative number */
static int call_clone(int (*run)(void *), void *stack, int flags, void *argument, ...)
{
    va_list rest;
    va_start(rest, argument);
    pid_t *parent_number = va_arg(rest, pid_t *);
    void *tls = va_arg(rest, void *);
    pid_t *child_number = va_arg(rest, pid_t *);
    va_end(rest);
    return sys_result(__clone(run, stack, flags, argument, parent_number, tls, child_number));
}
#define libc_clone() call_clone
#else
#include "preload/libc.h"

#include <dlfcn.h>

static clone_function *libc_clone(void)
{
    union {
        void *symbol;
        clone_function *call;
    } next = {.symbol = libc_symbol(RTLD_NEXT, "clone")};
    return next.call;
}
#endif

struct child {
    int (*run)(void *);
    void *argument;
    int flags;
    struct vfork_parent parent;
    _Atomic uint32_t *foreign;
};

struct request {
    void *stack;
    int flags;
    pid_t *parent_number;
    void *tls;
    pid_t *child_number;
};

static int raw_clone(int (*run)(void *), void *child, const struct request *r)
{
    return libc_clone()(run, r->stack, r->flags, child, r->parent_number, r->tls, r->child_number);
}

/* ---- a process of its own ---- */

/*
 * With CLONE_VFORK the parent could not release the locks until the child ends or executes a program. They are not
 * taken then; the child may find data half changed that another thread was writing, as after the bare system call.
 */
static bool takes_locks(int flags)
{
    return !(flags & CLONE_VFORK);
}

/* The child has a copy of its parent's stack, so it finds *argument there. */
static int begin_process(void *argument)
{
    const struct child *child = argument;
    if (!takes_locks(child->flags))
        cache_fork_unprepared(child->parent.name);
    start_fork_child();
    if (child->flags & CLONE_SETTLS)
        foreign_enter(0);
    return child->run(child->argument);
}

static int clone_process(struct child *child, const struct request *r)
{
    bool locks = takes_locks(r->flags);
    child->parent.name = lock_self();
    if (locks)
        cache_fork_prepare();
    int pid = raw_clone(begin_process, child, r);
    int error = errno;
    if (locks)
        cache_fork_parent();
    errno = error;
    return pid;
}

/* ---- a child in its parent's place ---- */

/* The parent is suspended, so *argument stays until the child has ended or executed a program. */
static int begin_stand_in(void *argument)
{
    const struct child *child = argument;
    vfork_returned(0, child->parent);
    return child->run(child->argument);
}

static int clone_stand_in(struct child *child, const struct request *r)
{
    child->parent = vfork_prepare();
    int pid = raw_clone(begin_stand_in, child, r);
    return vfork_returned(pid < 0 ? -errno : pid, child->parent);
}

/* ---- a foreign thread ---- */

/* Must not use thread-local data, not even that of libc's functions, before the program's function runs. */
static int begin_foreign(void *argument)
{
    const struct child *child = argument;
    foreign_begin(child->foreign);
    return child->run(child->argument);
}

/* What the child will read as its thread pointer. With one of the program's making that may be any word. */
static uintptr_t pointer_in_child(const struct request *r)
{
    if (!(r->flags & CLONE_SETTLS))
        return (uintptr_t)__builtin_thread_pointer();
#ifdef ARCH_ANY_THREAD_POINTER
    return FOREIGN_ANY_POINTER;
#else
    return (uintptr_t)r->tls;
#endif
}

/*
 * What the child starts from lies at the top of its stack, where libc puts its function and argument as well. The
 * kernel clears the word at the thread's end unless the program has a word of its own for that.
 */
static int clone_foreign(struct child *child, struct request *r)
{
    child->foreign = foreign_add(pointer_in_child(r), 0, FOREIGN_CLONES);
    if (!child->foreign) {
        errno = EAGAIN;
        return -1;
    }
    slot_pause_fast();
    bool cleared = !(r->flags & (CLONE_CHILD_CLEARTID | CLONE_CHILD_SETTID));
    if (cleared) {
        r->flags |= CLONE_CHILD_CLEARTID;
        r->child_number = (pid_t *)(void *)child->foreign;
    }
    struct child *top = (struct child *)(((uintptr_t)r->stack - sizeof(*top)) & ~15ul);
    *top = *child;
    r->stack = top;
    int pid = raw_clone(begin_foreign, top, r);
    if (pid >= 0) {
        if (!cleared)
            foreign_made(child->foreign, (uint32_t)pid);
        return pid;
    }
    int error = errno;
    foreign_remove(child->foreign);
    slot_resume_fast();
    errno = error;
    return -1;
}

/* ---- the entry point ---- */

sheaf_export int clone(int (*run)(void *), void *stack, int flags, void *argument, ...)
{
    struct child child = {.run = run, .argument = argument, .flags = flags};
    struct request r = {.stack = stack, .flags = flags};
    va_list rest; /* as in libc, what the caller did not pass is read but not used */
    va_start(rest, argument);
    r.parent_number = va_arg(rest, pid_t *);
    r.tls = va_arg(rest, void *);
    r.child_number = va_arg(rest, pid_t *);
    va_end(rest);
    if (!run || !stack || !malloc_init())
        return raw_clone(run, argument, &r);
    if (!(flags & CLONE_VM))
        return clone_process(&child, &r);
    if (flags & CLONE_VFORK && !(flags & CLONE_SETTLS))
        return clone_stand_in(&child, &r);
    return clone_foreign(&child, &r);
}
