/*
 * vfork() whose child may allocate. The kernel drops the rseq registration of a process that shares its parent's
 * memory, so its sections would no longer be restarted, on a slot that may by then belong to another thread of the
 * parent. The child therefore registers the area of the thread that it stands in for, before vfork() returns in it.
 * Where Sheaf steps aside (preload/names.h) there is no area to register.
 *
 * All signals are blocked until then, and in the parent until it has renewed its own registration
 * (platform/rseq/rseq.h). Otherwise a handler could allocate with numbers that are not those of its thread.
 */
#include "preload/vfork.h"
#include "platform/arch/arch.h"
#include "cache/kmem_cache.h"
#include "front/malloc/malloc.h"
#include "platform/os/foreign.h"
#include "platform/rseq/rseq.h"
#include "platform/os/syscall.h"
#include "process/helper.h"

#include <errno.h>
#include <signal.h>

static uint64_t set_signals(uint64_t mask)
{
    uint64_t before = 0;
    sys_call(SYS_rt_sigprocmask, SIG_SETMASK, (long)&mask, (long)&before, sizeof(mask), 0, 0);
    return before;
}

static bool sections(void)
{
    return cache_layer_ready && slot_mode != SHEAF_MODE_LOCK;
}

/*
 * If several threads run, the allocator must have started: a child that starts it would run sections before it could
 * register anything.
 */
__attribute__((used)) struct vfork_parent vfork_prepare(void)
{
    if (!cache_layer_ready && &__libc_single_threaded && !__libc_single_threaded)
        malloc_init();
    struct vfork_parent parent = {.mask = set_signals(~0ull)};
    atomic_fetch_add(&helper_barred, 1);
    parent.name = lock_self();
    return parent;
}

void foreign_enter(uint64_t parent)
{
    _Atomic uint32_t *word = foreign_add((uintptr_t)__builtin_thread_pointer(), parent, UINT32_MAX);
    slot_pause_fast();
    if (word)
        foreign_begin(word);
}

/*
 * The child of a foreign thread is foreign, too, because the area at their thread pointer is another thread's. So is
 * one whose registration a sandbox refuses.
 */
static void begin_child(uint64_t parent)
{
    if (sections() && (is_foreign_name(parent) || !rseq_stand_in(&slot_head(0)->area)))
        foreign_enter(parent);
}

/* The parent goes on when the child has ended or executed a program, or if there is none. */
static void go_on(uint64_t self, bool had_child)
{
    atomic_fetch_sub(&helper_barred, 1);
    if (!had_child || !sections())
        return;
    if (!is_foreign_name(self))
        rseq_renew(&slot_head(0)->area);
    if (atomic_load(&foreign_threads)) {
        foreign_remove_of(self);
        slot_resume_fast();
    }
}

__attribute__((used)) pid_t vfork_returned(long result, struct vfork_parent parent)
{
    if (result)
        go_on(parent.name, result > 0);
    else
        begin_child(parent.name);
    set_signals(parent.mask);
    if (result >= 0)
        return (pid_t)result;
    errno = (int)-result;
    return -1;
}

/* Assembly, because parent and child return through the same stack frame. */
/* Without rseq sections there is nothing to register, and libc's vfork() is used. */
#if SHEAF_HAVE_RSEQ && __has_include(ARCH_HEADER(vfork.h))
#include ARCH_HEADER(vfork.h)
#endif
