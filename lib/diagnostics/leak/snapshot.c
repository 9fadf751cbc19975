#define _GNU_SOURCE
#include "diagnostics/leak/snapshot.h"
#include "platform/arch/arch.h"
#include "cache/kmem_cache.h"
#include "diagnostics/leak/groups.h"
#include "diagnostics/leak/memory.h"
#include "diagnostics/leak/scan.h"
#include "diagnostics/leak/sort.h"
#include "diagnostics/leak/report.h"
#include "platform/os/syscall.h"
#include "platform/os/vm.h"
#include "memory/space/locks.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#ifndef SYS_close_range /* libc older than Linux 5.9 */
#define SYS_close_range 436
#endif
#define UNSHARE    2u          /* CLOSE_RANGE_UNSHARE */
#define WORDS_MOST (1ul << 27) /* 1 GiB */

struct sheaf_leaks snapshot_leaks;
static _Atomic int copy; /* its number; 0: none */

bool snapshot_known(void)
{
    return atomic_load_explicit(&copy, memory_order_relaxed);
}

bool snapshot_exists(void)
{
    int number = atomic_load_explicit(&copy, memory_order_relaxed);
    if (likely(!number))
        return false;
    if (!sys_call(SYS_wait4, number, 0, WNOHANG | __WCLONE, 0, 0, 0))
        return true;
    atomic_compare_exchange_strong(&copy, &number, 0); /* reaped, here or elsewhere */
    return false;
}

void snapshot_fork_child(void)
{
    if (atomic_load(&copy)) /* or its page would be copied */
        atomic_store(&copy, 0);
}

/* ---- in the copy ---- */

static bool by_address(const void *a, const void *b)
{
    return *(const uintptr_t *)a < *(const uintptr_t *)b;
}

static const uintptr_t *table_of(const struct sheaf_leaks *leaks, uint64_t at)
{
    return (const uintptr_t *)leaks->table + at;
}

/* The threads as the client describes them, and this one, which is the helper's copy. */
static bool describe_world(const struct sheaf_leaks *leaks, uintptr_t low, struct world *world)
{
    const uintptr_t *pairs = table_of(leaks, 0);
    *world = (struct world){.running = (uint32_t)leaks->running};
    world->threads = leak_map((leaks->threads + 1) * sizeof(*world->threads));
    if (!world->threads)
        return false;
    world->threads[0] =
        (struct world_thread){.stopped = true, .pointer = (uintptr_t)__builtin_thread_pointer(), .low = low};
    for (uint64_t i = 0; i < leaks->threads; i++)
        world->threads[i + 1] =
            (struct world_thread){.stopped = true, .pointer = pairs[2 * i], .low = pairs[2 * i + 1]};
    atomic_store(&world->count, (uint32_t)leaks->threads + 1);
    world->words = table_of(leaks, 2 * leaks->threads);
    world->word_count = leaks->words;
    return true;
}

struct list {
    struct mark *mark;
    uintptr_t *blocks;
    uint64_t count;
};

static void add_unreached(uint32_t number, struct block block, void *with)
{
    struct list *list = with;
    if (list->mark->heap->state[number] == BLOCK_LIVE)
        list->blocks[list->count++] = block.start;
}

/* The first copy: list what seems to be lost. */
static enum scan_failure make_list(struct sheaf_leaks *leaks, struct scan *scan)
{
    struct list list = {.mark = &scan->mark, .blocks = leak_map(scan->heap.live * sizeof(*list.blocks))};
    if (!list.blocks)
        return SCAN_NO_MEMORY;
    heap_each(&scan->heap, add_unreached, &list);
    leaks->result = (uintptr_t)list.blocks;
    leaks->bytes = list.count * sizeof(*list.blocks);
    return SCAN_DONE;
}

static bool is_listed(const struct list *list, uintptr_t start)
{
    uint64_t low = 0, high = list->count;
    while (low < high) {
        uint64_t middle = (low + high) / 2;
        if (list->blocks[middle] == start)
            return true;
        if (list->blocks[middle] < start)
            low = middle + 1;
        else
            high = middle;
    }
    return false;
}

static void reach_unlisted(uint32_t number, struct block block, void *with)
{
    const struct list *list = with;
    if (list->mark->heap->state[number] == BLOCK_LIVE && !is_listed(list, block.start))
        mark_word(list->mark, block.start);
}

/* The second copy: what the first one did not list counts as referenced. */
static enum scan_failure make_report(struct sheaf_leaks *leaks, struct scan *scan, uint32_t process)
{
    struct groups groups;
    const char *text;
    uintptr_t *blocks = (uintptr_t *)leaks->table + 2 * leaks->threads + leaks->words;
    struct list list = {.mark = &scan->mark, .blocks = blocks, .count = leaks->listed};
    leak_sort(blocks, list.count, sizeof(*blocks), by_address);
    heap_each(&scan->heap, reach_unlisted, &list);
    mark_reached(&scan->mark);
    mark_lost(&scan->mark);
    if (!groups_make(&groups, &scan->mark))
        return SCAN_NO_MEMORY;
    leaks->bytes = report_compose(&groups, (uint32_t)leaks->running, process, &text);
    leaks->result = (uintptr_t)text;
    return leaks->bytes ? SCAN_DONE : SCAN_NO_MEMORY;
}

/* If memory is short, this process should end, and not the program. */
static void offer_to_the_oom_killer(void)
{
    static const char most[] = "1000";
    long file = sys_call(SYS_openat, AT_FDCWD, (long)"/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC, 0, 0, 0);
    if (file < 0)
        return;
    sys_call3(SYS_write, file, (long)most, sizeof(most) - 1);
    sys_call3(SYS_close, file, 0, 0);
}

static enum scan_failure search(struct sheaf_leaks *leaks, uintptr_t low, uint32_t origin, uint32_t process)
{
    struct world world;
    struct scan scan;
    if (!describe_world(leaks, low, &world))
        return SCAN_NO_MEMORY;
    enum scan_failure failure = scan_reach(&scan, &world, origin);
    if (!failure && !leaks->second) {
        failure = make_list(leaks, &scan);
        leaks->second = !leaks->bytes; /* then there is nothing to confirm */
    }
    if (!failure && leaks->second)
        failure = make_report(leaks, &scan, process);
    maps_close(&scan.maps);
    return failure;
}

/* The copy must not take time from the program's threads, whatever policy the helper has, nor outlive the program. */
static void stand_back(void)
{
    static const struct sched_param none;
    sys_call3(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0);
    sys_call3(SYS_sched_setscheduler, 0, SCHED_BATCH, (long)&none);
    sys_call3(SYS_setpriority, PRIO_PROCESS, 0, 19);
}

/* The table of files is shared with the program until the first call, so that the copy never holds a file open. */
static __attribute__((noinline)) _Noreturn void run_copy(uintptr_t low, uint32_t origin, uint32_t process)
{
    static const uint8_t status[] = {
        [SCAN_DONE] = SHEAF_LEAKS_DONE,
        [SCAN_NO_PROC] = SHEAF_LEAKS_NO_PROC,
        [SCAN_NO_MEMORY] = SHEAF_LEAKS_NO_MEMORY,
    };
    bool separate = !sys_call3(SYS_close_range, 0, UINT32_MAX, UNSHARE) ||
                    !sys_call3(SYS_unshare, CLONE_FILES, 0, 0); /* before Linux 5.9 */
    struct sheaf_leaks *leaks = &snapshot_leaks;
    if (separate && read_once(leaks->begun)) {
        stand_back();
        offer_to_the_oom_killer();
        write_once(leaks->status, (uint64_t)status[search(leaks, low, origin, process)]);
    }
    for (;;)
        sys_call3(SYS_exit_group, 0, 0, 0);
}

/* ---- in the process ---- */

bool snapshot_would_blur(void)
{
    for (unsigned i = 0; i < read_once(cache_top); i++)
        if (atomic_load_explicit(&lock_of(i)->word, memory_order_relaxed))
            return true;
    return false;
}

long snapshot_make(uint64_t words)
{
    uintptr_t low;
    ARCH_STACK_POINTER(low);
    if (words > WORDS_MOST)
        return -ENOMEM;
    if (snapshot_exists())
        return -EBUSY;
    void *table = leak_map(words * sizeof(uint64_t));
    if (!table)
        return -ENOMEM;
    uint32_t process = (uint32_t)sys_call3(SYS_getpid, 0, 0, 0), self = (uint32_t)sys_call3(SYS_gettid, 0, 0, 0);
    snapshot_leaks.table = (uintptr_t)table;
    long number = sys_call(SYS_clone, CLONE_FILES, 0, 0, 0, 0, 0);
    if (!number)
        run_copy(low, self, process);
    if (number > 0)
        atomic_store(&copy, (int)number);
    leak_unmap_all();
    return number;
}
