#define _GNU_SOURCE
#include "process/helper.h"
#include "platform/os/libc.h"
#include "cache/kmem_cache.h"
#include "process/bell.h"
#include "process/decay.h"
#include "platform/os/cgroup.h"
#include "platform/os/clock.h"
#include "platform/os/file.h"
#include "platform/os/hooks.h"
#include "platform/os/syscall.h"
#include "platform/os/thread.h"

#include <errno.h>
#include <limits.h>
#include <link.h>
#include <string.h>

#define WORTH       64u  /* slices, 4 MiB: a thread starts when more has come or gone since the last one ended */
#define LITTLE      16u  /* slices, 1 MiB: a change in a round that does not count */
#define BUSY        256u /* slow paths in a round beyond which the program's own steps of decay suffice */
#define ROUNDS      8    /* per decay time */
#define PAUSE_LEAST 10   /* ms */
#define QUIET_ALL   5    /* quiet rounds after which memory that the region learned to keep is returned as well */
#define STILL_END   6    /* rounds without movement after which the thread ends */
#define NOT_SAFE_MS 16   /* until the next try, if the calling thread may not create one */
#define FAILED_MOST 8    /* tries, at growing intervals, that the system may refuse before there are no more */
#define FAILED_MS   1000 /* the first of these intervals without a decay time */
#define RETRY_MS    10   /* if another thread is busy with an earlier request */
#define CLOCK_STEP  4    /* ms, of clock_ms() */
#define LEAVE_MS    1000 /* that helper_leave() waits at most */

_Atomic bool helper_wanted;
bool helper_impossible;
_Atomic uint32_t helper_barred;
static _Atomic int running, number; /* whether the thread exists, and its number */
static _Atomic bool parked;         /* it waits for clients */
static _Atomic uint32_t leaving;    /* callers that wait for its end */
static _Atomic bool main_ended;
static bool main_known;  /* the end of the main thread will be noted */
static bool made_plural; /* there was one thread before the first helper */
static _Atomic uint32_t not_before_ms, failed;
static _Atomic uint64_t rest_in_use, rest_warm; /* slices, when the last thread ended */

static uint64_t distance(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

static struct helper_view observe(void)
{
    struct helper_view now = {
        .in_use = region_in_use(),
        .warm = read_once(region_stats.warm_slices),
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

/* Whether all threads of the program may have ended, in which case the process must end too. */
static bool maybe_last(void)
{
    return atomic_load(&main_ended) || !read_once(main_known);
}

/* Whether the thread exists for as long as the program, so that the process can answer while the program sleeps:
 * where there is a record. */
static bool stays(void)
{
    if (!hooks.poll_control || read_once(sheaf_config.helper) == HELPER_OFF || atomic_load(&leaving))
        return false;
    return !maybe_last() || (cgroup_may_open() && !is_last_thread());
}

static bool returns_memory(void)
{
    return helper_may() && read_once(sheaf_config.decay_ms) && !atomic_load(&leaving);
}

static bool worth_it(void)
{
    return distance(region_in_use(), atomic_load_explicit(&rest_in_use, memory_order_relaxed)) > WORTH ||
           distance(read_once(region_stats.warm_slices), atomic_load_explicit(&rest_warm, memory_order_relaxed)) >
               WORTH;
}

#ifndef __GLIBC__

_Atomic bool helper_saw_several;
static _Atomic uintptr_t first_thread; /* the thread pointer of the first one in a slow path */

static void note_thread(void)
{
    uintptr_t none = 0, self = (uintptr_t)__builtin_thread_pointer();
    if (!atomic_compare_exchange_strong(&first_thread, &none, self) && none != self)
        atomic_store(&helper_saw_several, true);
}

/* The child of a fork has one thread. */
static void forget_threads(void)
{
    atomic_store(&first_thread, (uintptr_t)__builtin_thread_pointer());
    atomic_store(&helper_saw_several, false);
}

static bool sees_one(void)
{
    return !helper_sees_several();
}

#else

static void note_thread(void) {}
static void forget_threads(void) {}

/* Not the opposite of helper_sees_several(): an older glibc does not tell. */
static bool sees_one(void)
{
    return &__libc_single_threaded && __libc_single_threaded;
}

#endif

void helper_poll(void)
{
    if (sheaf_config.helper == HELPER_AUTO && !helper_sees_several())
        note_thread();
    bool worth = helper_may() && sheaf_config.decay_ms && worth_it();
    if (atomic_load_explicit(&running, memory_order_relaxed)) {
        if (worth && atomic_load_explicit(&parked, memory_order_relaxed))
            bell_ring();
        return;
    }
    if (atomic_load_explicit(&helper_wanted, memory_order_relaxed) || (!worth && !stays()))
        return;
    uint32_t n = atomic_load_explicit(&failed, memory_order_relaxed);
    if (n >= FAILED_MOST || (int32_t)(clock_ms() - atomic_load_explicit(&not_before_ms, memory_order_relaxed)) < 0)
        return;
    if ((!worth || made_plural) && !cgroup_may_open()) { /* nor start a thread in a sandbox of such a program */
        atomic_store(&failed, FAILED_MOST);
        return;
    }
    atomic_store_explicit(&helper_wanted, true, memory_order_relaxed);
}

/* Whether the caller is the dynamic loader, which frees the thread-local data of threads that ended. libc then
 * holds the lock of its list of stacks, and pthread_create() would wait for that lock forever. */
static bool in_loader(const void *caller)
{
    const struct r_debug *objects = libc_objects();
    uintptr_t base = objects ? objects->r_ldbase : 0;
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
    if (sees_one())
        made_plural = true;
    if (better_not()) {
        atomic_store(&not_before_ms, clock_ms() + NOT_SAFE_MS);
        atomic_store(&running, 0);
    } else if (!thread_start(hooks.thread_create ? hooks.thread_create() : pthread_create, helper, 64 << 10)) {
        uint32_t n = atomic_fetch_add(&failed, 1);
        uint32_t first = sheaf_config.decay_ms ? sheaf_config.decay_ms : FAILED_MS;
        atomic_store(&not_before_ms, clock_ms() + (first << (n < 6 ? n : 6)));
        atomic_store(&running, 0);
    }
    errno = saved;
}

void helper_forget(void)
{
    forget_threads();
    if (atomic_load(&running)) /* or its page would be copied */
        atomic_store(&running, 0);
    if (atomic_load(&helper_barred))
        atomic_store(&helper_barred, 0);
    if (atomic_load(&leaving))
        atomic_store(&leaving, 0);
    if (atomic_load(&parked))
        atomic_store(&parked, false);
    if (atomic_load(&main_ended))
        atomic_store(&main_ended, false);
}

/* ---- the end of the main thread, and leaving for a while ---- */

/*
 * libc ends a process with its last thread, and counts the helper. A destructor of thread-local data tells when the
 * main thread ends by pthread_exit(); from then on the helper looks whether it is the last one.
 */
static void main_ends(void *unused)
{
    (void)unused;
    atomic_store(&main_ended, true);
    bell_ring();
}

void helper_note_main(void)
{
    enum { IN_PLACE = 32 }; /* pthread_setspecific() allocates for keys from this one on */
    static pthread_key_t key;
    static bool made;
    if (!libc_has(pthread_key_create))
        return;
    if (!libc_has(pthread_setspecific))
        return;
    if (!made && pthread_key_create(&key, main_ends) != 0)
        return;
    made = true;
    write_once(main_known, !foreign_here() && key < IN_PLACE && pthread_setspecific(key, &key) == 0);
}

void helper_at_once(void)
{
    if (sheaf_config.helper == HELPER_ON)
        atomic_store_explicit(&helper_wanted, true, memory_order_relaxed);
}

/* Whether the system knows no such thread any more, so that it does not count. */
static bool is_gone(void)
{
    return !atomic_load(&running) &&
           sys_call3(SYS_tgkill, sys_call(SYS_getpid, 0, 0, 0, 0, 0, 0), atomic_load(&number), 0) < 0;
}

bool helper_leave(void)
{
    atomic_fetch_add(&helper_barred, 1);
    atomic_fetch_add(&leaving, 1);
    bool was = atomic_load(&running);
    if (was)
        bell_ring();
    for (uint32_t start = clock_ms(); was && !is_gone() && clock_ms() - start < LEAVE_MS;)
        sys_call(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
    return was;
}

void helper_never(void)
{
    if (!made_plural && !sees_one())
        return;
    atomic_store(&failed, FAILED_MOST);
    atomic_store(&helper_wanted, false);
}

void helper_return(bool was)
{
    atomic_fetch_sub(&leaving, 1);
    atomic_fetch_sub(&helper_barred, 1);
    if (was)
        atomic_store_explicit(&helper_wanted, true, memory_order_relaxed);
}

/* ---- the thread ---- */

/*
 * In a quiet round the thread runs a step of decay. What was not used since the round before goes from sheaves and
 * barns to the slabs, and then to the system, which takes two rounds. In a busy program its own slow paths do
 * that.
 */
bool helper_round(struct helper_rounds *rounds)
{
    struct helper_view now = observe();
    rounds->quiet = now.calls - rounds->before.calls > BUSY ? 0 : rounds->quiet + 1;
    if (rounds->quiet) {
        cache_decay_idle(rounds->quiet >= QUIET_ALL);
        now = observe();
    }
    bool moved =
        distance(now.in_use, rounds->before.in_use) > LITTLE || distance(now.warm, rounds->before.warm) > LITTLE;
    rounds->still = moved ? 0 : rounds->still + 1;
    rounds->before = now;
    return rounds->still < STILL_END;
}

static uint32_t round_ms(void)
{
    uint32_t ms = read_once(sheaf_config.decay_ms) / ROUNDS;
    return ms > PAUSE_LEAST ? ms : PAUSE_LEAST;
}

/* Do what a client asks for. Returns for how long the thread may then sleep, at most `ms`. */
static uint32_t answer(uint32_t ms)
{
    bool done = !hooks.poll_control || hooks.poll_control();
    return done || ms < RETRY_MS ? ms : RETRY_MS;
}

/* Sleep until the next round, and answer clients. Returns false if the thread was switched off meanwhile. */
static bool wait_for_round(void)
{
    uint32_t start = clock_ms(), ms = round_ms(), passed = 0;
    do {
        struct bell bell = bell_read();
        uint32_t most = answer(ms - passed);
        if (!returns_memory())
            return false;
        bell_wait(bell, most);
        passed = clock_ms() - start;
    } while (passed + CLOCK_STEP < ms);
    answer(0);
    return returns_memory();
}

static void return_memory(void)
{
    struct helper_rounds rounds = {.before = observe()};
    while (wait_for_round() && helper_round(&rounds)) {
    }
    atomic_store_explicit(&rest_in_use, rounds.before.in_use, memory_order_relaxed);
    atomic_store_explicit(&rest_warm, rounds.before.warm, memory_order_relaxed);
}

/* Sleep until a client asks for something, or there is memory worth returning. */
static void wait_for_client(void)
{
    atomic_store(&parked, true);
    struct bell bell = bell_read();
    uint32_t most = answer(maybe_last() ? round_ms() : HELPER_SLEEP_MS);
    if (stays() && !(returns_memory() && worth_it()))
        bell_wait(bell, most);
    atomic_store(&parked, false);
}

static void publish_waits(bool waits)
{
    if (hooks.control_waits)
        hooks.control_waits(waits);
}

static void *helper(void *unused)
{
    (void)unused;
    atomic_store(&number, (int)sys_call(SYS_gettid, 0, 0, 0, 0, 0, 0));
    publish_waits(true);
    do {
        if (returns_memory() && (worth_it() || !hooks.poll_control))
            return_memory();
        while (stays() && !(returns_memory() && worth_it()))
            wait_for_client();
    } while (returns_memory() && worth_it());
    publish_waits(false);
    atomic_store(&failed, 0);
    atomic_store(&running, 0);
    return NULL;
}
