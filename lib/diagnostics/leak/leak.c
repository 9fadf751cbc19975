#include "diagnostics/leak/leak.h"
#include "platform/arch/arch.h"
#include "cache/kmem_cache.h"
#include "diagnostics/leak/memory.h"
#include "diagnostics/leak/scan.h"
#include "diagnostics/leak/report.h"
#include "platform/os/message.h"

/* `low`: see world_stop(). */
static __attribute__((noinline)) enum scan_failure search(struct groups *groups, uint32_t *running, uintptr_t low)
{
    struct scan scan;
    struct world *world = world_stop(low);
    if (!world)
        return SCAN_NO_PROC;
    enum scan_failure failure = scan_reach(&scan, world, 0);
    if (!failure) {
        mark_lost(&scan.mark);
        failure = groups_make(groups, &scan.mark) ? SCAN_DONE : SCAN_NO_MEMORY;
    }
    maps_close(&scan.maps);
    *running = world->running;
    world_resume(world);
    return failure;
}

static __attribute__((noinline)) void report(uintptr_t low)
{
    static const char *const why[] = {
        [SCAN_NO_PROC] = "sheaf: leaks: /proc/self cannot be read, so nothing is reported; mount /proc",
        [SCAN_NO_MEMORY] = "sheaf: leaks: no memory for the scan, so nothing is reported; raise `ulimit -v`",
    };
    struct groups groups;
    uint32_t running = 0;
    enum scan_failure failure = search(&groups, &running, low);
    if (failure) {
        struct message m = {.length = 0};
        message_text(&m, why[failure]);
        message_write(&m);
    } else {
        report_leaks(&groups, running);
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
    ARCH_STACK_POINTER(low);
    if (cache_layer_ready)
        report(low);
    __asm__ volatile("" ::: "memory"); /* no tail call: the frame stays */
}
