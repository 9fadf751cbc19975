#include "leak/leak.h"
#include "cache/kmem_cache.h"
#include "leak/memory.h"
#include "leak/roots.h"
#include "leak/tell.h"
#include "os/message.h"

static bool forked;

void leak_fork_child(void)
{
    forked = true;
}

enum failure { FAIL_NONE, FAIL_PROC, FAIL_MEMORY };

/* `low`: see world_stop(). */
static __attribute__((noinline)) enum failure scan(struct groups *groups, uint32_t *running, uintptr_t low)
{
    struct heap heap;
    struct maps maps;
    struct mark mark;
    enum failure failure = FAIL_MEMORY;
    struct world *world = world_stop(low);
    if (!world)
        return FAIL_PROC;
    if (!maps_read(&maps))
        failure = FAIL_PROC;
    else if (heap_read(&heap) && mark_begin(&mark, &heap, &maps) && heap_take_out_kept(&heap, mark_range, &mark) &&
             roots_mark(&mark, world, forked)) {
        mark_lost(&mark);
        failure = groups_make(groups, &mark) ? FAIL_NONE : FAIL_MEMORY;
    }
    maps_close(&maps);
    *running = world->running;
    world_resume(world);
    return failure;
}

static __attribute__((noinline)) void report(uintptr_t low)
{
    static const char *const why[] = {
        [FAIL_PROC] = "sheaf: leaks: /proc/self cannot be read, so nothing is reported; mount /proc",
        [FAIL_MEMORY] = "sheaf: leaks: no memory for the scan, so nothing is reported; raise `ulimit -v`",
    };
    struct groups groups;
    uint32_t running = 0;
    enum failure failure = scan(&groups, &running, low);
    if (failure) {
        struct message m = {.length = 0};
        message_text(&m, why[failure]);
        message_write(&m);
    } else {
        tell_report(&groups, running);
    }
    leak_unmap_all();
}

/*
 * Saves the registers of the caller in this frame, which is the lowest part of the stack that is searched for
 * references: the frames below hold addresses of the scan.
 */
__attribute__((noinline)) void leak_report(void)
{
    uintptr_t low;
    __builtin_unwind_init();
#if defined(__x86_64__)
    __asm__ volatile("mov %%rsp, %0" : "=r"(low));
#else
    __asm__ volatile("mov %0, sp" : "=r"(low));
#endif
    if (cache_layer_ready)
        report(low);
    __asm__ volatile("" ::: "memory"); /* no tail call: the frame stays */
}
