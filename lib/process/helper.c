#define _GNU_SOURCE
#include "process/helper.h"
#include "cache/kmem_cache.h"
#include "process/decay.h"
#include "process/limit.h"
#include "os/cgroup.h"
#include "os/clock.h"
#include "os/file.h"
#include "os/hooks.h"
#include "os/syscall.h"
#include "os/thread.h"

#include <errno.h>
#include <limits.h>
#include <link.h>
#include <linux/futex.h>
#include <string.h>
#include <time.h>

#define WORTH       64u  /* units, 4 MiB: a thread starts when more has come or gone since the last one ended */
#define LITTLE      16u  /* units, 1 MiB: a change in a round that does not count */
#define BUSY        256u /* slow paths in a round beyond which the program's own steps of decay suffice */
#define ROUNDS      8    /* per decay time */
#define PAUSE_LEAST 10   /* ms */
#define QUIET_ALL   5    /* quiet rounds after which memory that the region learned to keep is returned as well */
#define STILL_END   6    /* rounds without movement after which the thread ends */
#define NOT_SAFE_MS 16   /* until the next try, if the calling thread may not create one */
#define FAILED_MOST 8    /* tries, at growing intervals, that the system may refuse before there are no more */

_Atomic bool helper_wanted;
bool helper_impossible;
_Atomic uint32_t helper_barred;
static _Atomic int running;
static _Atomic uint32_t not_before_ms, failed;
static _Atomic uint64_t rest_in_use, rest_warm; /* units, when the last thread ended */

static uint64_t distance(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

static struct helper_look look(void)
{
    struct helper_look now = {
        .in_use = region_in_use(),
        .warm = read_once(region_stats.warm_units),
    };
    for (unsigned slot = 0; slot < read_once(slot_top); slot++)
        if (slot_writable(slot))
            now.calls += read_once(slot_head(slot)->slow_calls);
    return now;
}

/* ---- starting ---- */

/* Whether this is the only thread that has not ended, the main thread included. /proc/self/stat has the state of the
 * main thread behind the name of the program, and 17 fields on the number of threads, which counts that one too. */
static bool is_last_thread(void)
{
    char text[512], *at = file_read("/proc/self/stat", text, sizeof(text)) ? strrchr(text, ')') : NULL;
    if (!at || at[1] != ' ' || at[2] != 'Z')
        return false;
    at += 2;
    for (int field = 3; at && field < 20; field++)
        at = strchr(at + 1, ' ');
    return at && at[1] == '2' && at[2] == ' ';
}

/* The thread stays where the user wants one in any case and there is a record, so that the process can answer while
 * the program sleeps. */
static bool stays(void)
{
    return hooks.look_control && sheaf_config.helper == HELPER_ON && limit_allowed && cgroup_may_open() &&
           !is_last_thread();
}

static bool worth_it(void)
{
    return distance(region_in_use(), atomic_load_explicit(&rest_in_use, memory_order_relaxed)) > WORTH ||
           distance(read_once(region_stats.warm_units), atomic_load_explicit(&rest_warm, memory_order_relaxed)) >
               WORTH;
}

void helper_look(void)
{
    if (atomic_load_explicit(&running, memory_order_relaxed) ||
        atomic_load_explicit(&helper_wanted, memory_order_relaxed))
        return;
    if (!worth_it() && !stays())
        return;
    uint32_t n = atomic_load_explicit(&failed, memory_order_relaxed);
    if (n >= FAILED_MOST || (int32_t)(clock_ms() - atomic_load_explicit(&not_before_ms, memory_order_relaxed)) < 0)
        return;
    atomic_store_explicit(&helper_wanted, true, memory_order_relaxed);
}

extern __typeof__(_r_debug) _r_debug __attribute__((weak)); // NOLINT(readability-redundant-declaration): weak

/* Whether the caller is the dynamic loader, which frees the thread-local data of threads that ended. libc then
 * holds the lock of its list of stacks, and pthread_create() would wait for that lock forever. */
static bool in_loader(const void *caller)
{
    uintptr_t base = &_r_debug ? _r_debug.r_ldbase : 0;
    if (!base)
        return false;
    const ElfW(Ehdr) *header = (const ElfW(Ehdr) *)base;
    const ElfW(Phdr) *segment = (const ElfW(Phdr) *)(base + header->e_phoff);
    for (unsigned i = 0; i < header->e_phnum; i++)
        if (segment[i].p_type == PT_LOAD && (uintptr_t)caller - base - segment[i].p_vaddr < segment[i].p_memsz)
            return true;
    return false;
}

/* The kernel's struct sigaction. */
struct kernel_action {
    uintptr_t handler, flags, rest[2];
};

static bool synchronous(int signal)
{
    return signal == SIGSEGV || signal == SIGBUS || signal == SIGFPE || signal == SIGILL || signal == SIGTRAP;
}

/*
 * Whether this thread must not call pthread_create(). A signal handler must not, because it may have interrupted
 * that function. In a handler its own signal is blocked, so a thread that blocks a signal with a handler creates
 * no thread; another thread, or another call, will. A handler with SA_NODEFER cannot be recognized, so with one no
 * thread creates any. Signals 32 and 33 are libc's own, whose handlers do not allocate. A program that handles
 * SIGSYS runs in a sandbox that sends it for forbidden system calls; while libc creates a thread all signals are
 * blocked, and SIGSYS then ends the process.
 */
static bool better_not(void)
{
    uint64_t blocked = 0;
    sys_call(SYS_rt_sigprocmask, SIG_BLOCK, 0, (long)&blocked, sizeof(blocked), 0, 0);
    for (int signal = 1; signal <= 64; signal++) {
        struct kernel_action action = {0};
        if (signal == SIGKILL || signal == SIGSTOP || signal == 32 || signal == 33 || synchronous(signal) ||
            sys_call(SYS_rt_sigaction, signal, 0, (long)&action, sizeof(blocked), 0, 0) != 0)
            continue;
        if (action.handler > 1 && ((blocked >> (signal - 1) & 1) || (action.flags & SA_NODEFER) || signal == SIGSYS))
            return true;
    }
    return false;
}

static void *helper(void *unused);

/* `running` is set first, because pthread_create() calls malloc, which may call this function again. */
void helper_start(const void *caller)
{
    int no = 0;
    bool forking = atomic_load_explicit(&lock_of(LOCK_FORKER)->word, memory_order_relaxed) == lock_self();
    if (atomic_load_explicit(&helper_barred, memory_order_relaxed) ||
        foreign_here()) /* libc does not know the thread */
        return;
    if (in_loader(caller) || forking || !atomic_compare_exchange_strong(&running, &no, 1))
        return;
    atomic_store_explicit(&helper_wanted, false, memory_order_relaxed);
    int saved = errno;
    if (better_not()) {
        atomic_store(&not_before_ms, clock_ms() + NOT_SAFE_MS);
        atomic_store(&running, 0);
    } else if (!thread_start(hooks.thread_create ? hooks.thread_create() : pthread_create, helper, 64 << 10)) {
        uint32_t n = atomic_fetch_add(&failed, 1);
        atomic_store(&not_before_ms, clock_ms() + (sheaf_config.decay_ms << (n < 6 ? n : 6)));
        atomic_store(&running, 0);
    }
    errno = saved;
}

void helper_forget(void)
{
    if (atomic_load(&running)) /* or its page would be copied */
        atomic_store(&running, 0);
    if (atomic_load(&helper_barred))
        atomic_store(&helper_barred, 0);
}

/* ---- the thread ---- */

/*
 * In a quiet round the thread runs a step of decay. What was not used since the round before goes from sheaves and
 * barns to the slabs, and then to the system, which takes two rounds. In a busy program its own slow paths do
 * that.
 */
bool helper_round(struct helper_rounds *rounds)
{
    struct helper_look now = look();
    rounds->quiet = now.calls - rounds->before.calls > BUSY ? 0 : rounds->quiet + 1;
    if (rounds->quiet) {
        cache_decay_idle(rounds->quiet >= QUIET_ALL);
        now = look();
    }
    bool moved =
        distance(now.in_use, rounds->before.in_use) > LITTLE || distance(now.warm, rounds->before.warm) > LITTLE;
    rounds->still = moved ? 0 : rounds->still + 1;
    rounds->before = now;
    return rounds->still < STILL_END;
}

/* Sleep by futex(), which any sandbox that allows threads must allow. */
static void pause_ms(uint32_t ms)
{
    uint32_t word = 0;
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    sys_call(SYS_futex, (long)&word, FUTEX_WAIT_PRIVATE, 0, (long)&time, 0, 0);
}

/* Sleep until the next round, and answer a client. Returns false if the thread was switched off meanwhile. */
static bool wait_for_round(void)
{
    uint32_t ms = read_once(sheaf_config.decay_ms) / ROUNDS;
    pause_ms(ms > PAUSE_LEAST ? ms : PAUSE_LEAST);
    if (hooks.look_control)
        hooks.look_control();
    return helper_may() && read_once(sheaf_config.decay_ms);
}

static void *helper(void *unused)
{
    (void)unused;
    bool on = true;
    do {
        struct helper_rounds rounds = {.before = look()};
        while ((on = wait_for_round()) && helper_round(&rounds)) {
        }
        atomic_store_explicit(&rest_in_use, rounds.before.in_use, memory_order_relaxed);
        atomic_store_explicit(&rest_warm, rounds.before.warm, memory_order_relaxed);
        while (on && !worth_it() && (on = stays()))
            on = wait_for_round();
    } while (on);
    atomic_store(&failed, 0);
    atomic_store(&running, 0);
    return NULL;
}
