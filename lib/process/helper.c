#define _GNU_SOURCE
#include "process/helper.h"
#include "cache/kmem_cache.h"
#include "process/decay.h"
#include "os/clock.h"
#include "os/syscall.h"
#include "os/thread.h"

#include <errno.h>
#include <limits.h>
#include <link.h>
#include <linux/futex.h>
#include <time.h>

#define WORTH       64u  /* units, 4 MiB: so much must have come or gone since the last thread ended */
#define LITTLE      16u  /* units, 1 MiB: less than that in a round is no movement */
#define BUSY        256u /* slow paths in a round: the program's own steps of decay do what is due */
#define ROUNDS      8    /* in the decay time */
#define PAUSE_LEAST 10   /* ms */
#define QUIET_ALL   5    /* quiet rounds after which also what was learned to be kept goes back */
#define STILL_END   6    /* rounds without movement after which the thread ends */
#define NOT_SAFE_MS 16   /* until the next try, where this thread may not start another one */
#define FAILED_MOST 8    /* tries that the system refuses, ever longer apart, after which there are no more */

_Atomic bool helper_wanted;
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

void helper_look(void)
{
    if (atomic_load_explicit(&running, memory_order_relaxed) ||
        atomic_load_explicit(&helper_wanted, memory_order_relaxed))
        return;
    uint64_t in_use = region_in_use();
    if (distance(in_use, atomic_load_explicit(&rest_in_use, memory_order_relaxed)) <= WORTH &&
        distance(read_once(region_stats.warm_units), atomic_load_explicit(&rest_warm, memory_order_relaxed)) <= WORTH)
        return;
    uint32_t n = atomic_load_explicit(&failed, memory_order_relaxed);
    if (n >= FAILED_MOST || (int32_t)(clock_ms() - atomic_load_explicit(&not_before_ms, memory_order_relaxed)) < 0)
        return;
    atomic_store_explicit(&helper_wanted, true, memory_order_relaxed);
}

extern __typeof__(_r_debug) _r_debug __attribute__((weak)); // NOLINT(readability-redundant-declaration): weak

/*
 * The dynamic loader frees the thread-local data of threads that ended. libc has the lock of its list of stacks then,
 * and pthread_create() would wait for it for ever.
 */
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

/* As the kernel has it. */
struct kernel_action {
    uintptr_t handler, flags, rest[2];
};

static bool synchronous(int signal)
{
    return signal == SIGSEGV || signal == SIGBUS || signal == SIGFPE || signal == SIGILL || signal == SIGTRAP;
}

/*
 * A handler may have interrupted pthread_create(), so none may call it. In a handler its own signal is blocked: so a
 * thread that blocks a signal which has a handler starts nothing; another thread or another time will do. Where a
 * handler does without that, nothing tells. Signals 32 and 33 are libc's own, whose handlers do not allocate. And a
 * program that handles SIGSYS runs in a sandbox that sends it for forbidden system calls: while libc makes a thread
 * all signals are blocked, and then that one ends the process.
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

/* pthread_create() calls malloc, which may come here again: the flag is set first. */
void helper_start(const void *caller)
{
    int no = 0;
    bool forking = atomic_load_explicit(&lock_of(LOCK_FORKER)->word, memory_order_relaxed) == lock_self();
    if (in_loader(caller) || forking || !atomic_compare_exchange_strong(&running, &no, 1))
        return;
    atomic_store_explicit(&helper_wanted, false, memory_order_relaxed);
    int saved = errno;
    if (better_not()) {
        atomic_store(&not_before_ms, clock_ms() + NOT_SAFE_MS);
        atomic_store(&running, 0);
    } else if (!thread_start(helper, 64 << 10)) {
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
}

/* ---- the thread ---- */

/*
 * A quiet round is a step of decay. What nobody used since the round before goes from the sheaves and barns to the
 * slabs, and from there to the system: it takes two rounds. In a program that is at work its own slow paths do that.
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

/* By futex, which every program with threads may use, whatever else is forbidden to it. */
static void pause_ms(uint32_t ms)
{
    uint32_t word = 0;
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    sys_call(SYS_futex, (long)&word, FUTEX_WAIT_PRIVATE, 0, (long)&time, 0, 0);
}

static void *helper(void *unused)
{
    (void)unused;
    uint32_t ms = sheaf_config.decay_ms / ROUNDS;
    struct helper_rounds rounds = {.before = look()};
    do {
        pause_ms(ms > PAUSE_LEAST ? ms : PAUSE_LEAST);
    } while (helper_round(&rounds));
    atomic_store_explicit(&rest_in_use, rounds.before.in_use, memory_order_relaxed);
    atomic_store_explicit(&rest_warm, rounds.before.warm, memory_order_relaxed);
    atomic_store(&failed, 0);
    atomic_store(&running, 0);
    return NULL;
}
