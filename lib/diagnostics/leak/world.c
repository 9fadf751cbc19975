#define _GNU_SOURCE
#include "diagnostics/leak/world.h"
#include "platform/arch/arch.h"
#include "platform/os/clock.h"
#include "platform/os/file.h"
#include "platform/os/syscall.h"
#include "platform/os/text.h"
#include "platform/os/vm.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>

#define THREADS_MOST 65536u /* further ones are counted as running */
#define FIRST_SIGNAL 34     /* libc keeps 32 and 33 for itself */
#define LAST_SIGNAL  64
#define ANSWER_MS    5000 /* for threads that can answer */
#define SLOW_MS      100  /* for threads that may never answer */
#define TICK_MS      10

/*
 * The state that handlers read. It is static because a late handler may run after the resumption: `parking` is false
 * then, and the handler returns at once.
 */
static struct world world;
static _Atomic bool parking;
static _Atomic uint32_t answers, resumed; /* futexes */
static uint32_t process, self;
static int stop_signal;
static struct sigaction action_before;
static uint64_t mask_before;

static void futex_sleep(_Atomic uint32_t *word, uint32_t seen, uint32_t ms)
{
    struct timespec time = {.tv_nsec = (long)ms * 1000000};
    sys_call(SYS_futex, (long)word, FUTEX_WAIT_PRIVATE, seen, ms ? (long)&time : 0, 0, 0);
}

static void futex_wake_all(_Atomic uint32_t *word)
{
    sys_call3(SYS_futex, (long)word, FUTEX_WAKE_PRIVATE, INT32_MAX);
}

/* ---- the handler ---- */

static uintptr_t interrupted_stack(const ucontext_t *context)
{
    return ARCH_CONTEXT_STACK(context) - ARCH_RED_ZONE;
}

static struct world_thread *thread_of(uint32_t id)
{
    for (uint32_t i = 0; i < atomic_load(&world.count); i++)
        if (world.threads[i].id == id)
            return &world.threads[i];
    return NULL;
}

/*
 * Finds where the thread's stack is in use. A thread that was on its alternate stack when the signal came has left
 * its other stack at an address that is not known.
 */
static void describe(struct world_thread *thread, const ucontext_t *context, uintptr_t frame)
{
    uintptr_t start = (uintptr_t)context->uc_stack.ss_sp, size = context->uc_stack.ss_size;
    bool has_alternate = start && size && !(context->uc_stack.ss_flags & SS_DISABLE);
    bool was_there = has_alternate && interrupted_stack(context) - start < size;
    bool is_there = has_alternate && frame - start < size;
    thread->pointer = (uintptr_t)__builtin_thread_pointer();
    thread->low = was_there ? 0 : is_there ? interrupted_stack(context) : frame;
    thread->alternate = has_alternate ? start : 0;
    thread->frame = is_there ? frame : 0;
    thread->end = is_there ? start + size : 0;
}

static void park(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    if (!atomic_load(&parking) || info->si_code != SI_TKILL || (uint32_t)info->si_pid != process)
        return;
    struct world_thread *thread = thread_of((uint32_t)sys_call3(SYS_gettid, 0, 0, 0));
    if (!thread)
        return;
    describe(thread, context, (uintptr_t)&thread);
    atomic_store(&thread->stopped, true);
    atomic_fetch_add(&answers, 1);
    futex_wake_all(&answers);
    while (!atomic_load(&resumed))
        futex_sleep(&resumed, 0, 0);
}

/* ---- the list of threads ---- */

struct listed {
    uint64_t blocked; /* signals */
    bool alive, uninterruptible;
};

/* Reads what /proc tells of a thread. */
static struct listed read_status(uint32_t id)
{
    char path[48] = "/proc/self/task/", text[2048], digits[12];
    size_t at = sizeof(digits) - 1;
    struct listed found = {.alive = false};
    for (digits[at] = 0; id; id /= 10)
        digits[--at] = (char)('0' + id % 10);
    strcat(strcat(path, digits + at), "/status");
    if (!file_read(path, text, sizeof(text)))
        return found;
    const char *state = strstr(text, "\nState:\t"), *mask = strstr(text, "\nSigBlk:\t");
    found.alive = state && state[8] != 'Z' && state[8] != 'X';
    found.uninterruptible = state && state[8] == 'D';
    for (mask = mask ? mask + 9 : ""; *mask && *mask != '\n'; mask++)
        found.blocked = found.blocked << 4 | (uint64_t)(*mask <= '9' ? *mask - '0' : *mask - 'a' + 10);
    return found;
}

/* Calls `visit` for each thread of the process. Returns false if they cannot be listed. */
static bool each_thread(void (*visit)(uint32_t id, void *with), void *with)
{
    struct entry {
        uint64_t inode, offset;
        uint16_t length;
        uint8_t type;
        char name[];
    };
    char buffer[2048] __attribute__((aligned(8)));
    long got, directory = sys_call(SYS_openat, AT_FDCWD, (long)"/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC,
                                   0, 0, 0);
    if (directory < 0)
        return false;
    while ((got = sys_call3(SYS_getdents64, directory, (long)buffer, sizeof(buffer))) > 0)
        for (long at = 0; at < got;) {
            const struct entry *entry = (const struct entry *)(const void *)(buffer + at);
            const char *name = entry->name;
            uint64_t id;
            if (text_number(&name, false, &id))
                visit((uint32_t)id, with);
            at += entry->length;
        }
    sys_call3(SYS_close, directory, 0, 0);
    return got == 0;
}

/* ---- the signal ---- */

struct blocked {
    uint32_t threads[LAST_SIGNAL + 1]; /* that block the signal */
    bool others;                       /* there are threads beside the calling one */
};

static void count_blocked(uint32_t id, void *with)
{
    struct blocked *blocked = with;
    if (id == self)
        return;
    struct listed thread = read_status(id);
    blocked->others = true;
    for (int i = FIRST_SIGNAL; i <= LAST_SIGNAL && thread.alive; i++)
        blocked->threads[i] += thread.blocked >> (i - 1) & 1;
}

/* Returns 0 if every signal has a handler or is ignored. */
static int choose_signal(const struct blocked *blocked)
{
    int best = 0;
    for (int i = FIRST_SIGNAL; i <= LAST_SIGNAL; i++) {
        struct sigaction action;
        if (sigaction(i, NULL, &action) || action.sa_handler != SIG_DFL)
            continue;
        if (!best || blocked->threads[i] <= blocked->threads[best])
            best = i;
    }
    return best;
}

/* Without a signal that can be used, the other threads go on running. */
static void install(void)
{
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};
    action.sa_sigaction = park;
    sigfillset(&action.sa_mask);
    if (stop_signal && sigaction(stop_signal, &action, &action_before))
        stop_signal = 0;
}

/* A signal that is still pending would end the process under its default action. Ignoring it discards it. */
static void uninstall(void)
{
    struct sigaction ignore = {.sa_flags = 0};
    ignore.sa_handler = SIG_IGN;
    sigaction(stop_signal, &ignore, NULL);
    sigaction(stop_signal, &action_before, NULL);
}

/* ---- stopping ---- */

struct round {
    uint32_t asked, beyond;
};

static void ask(uint32_t id, void *with)
{
    struct round *round = with;
    uint32_t n = atomic_load(&world.count);
    if (thread_of(id))
        return;
    if (n == THREADS_MOST) {
        round->beyond++;
        return;
    }
    struct listed listed = read_status(id);
    if (!listed.alive)
        return;
    struct world_thread *thread = &world.threads[n];
    thread->id = id;
    thread->slow = !stop_signal || listed.uninterruptible || listed.blocked >> (stop_signal - 1) & 1;
    atomic_store(&world.count, n + 1); /* before the handler looks for it */
    long sent = sys_call3(SYS_tgkill, process, id, stop_signal);
    thread->gone = sent == -ESRCH;
    round->asked++;
}

/* Counts the threads that have not answered, and those of them that can. */
static uint32_t missing(uint32_t *able)
{
    uint32_t all = 0;
    *able = 0;
    for (uint32_t i = 0; i < atomic_load(&world.count); i++) {
        struct world_thread *thread = &world.threads[i];
        if (atomic_load(&thread->stopped) || thread->gone)
            continue;
        thread->gone = sys_call3(SYS_tgkill, process, thread->id, 0) == -ESRCH || !read_status(thread->id).alive;
        all += !thread->gone;
        *able += !thread->gone && !thread->slow;
    }
    return all;
}

static uint32_t wait_for_answers(void)
{
    uint32_t start = clock_ms(), seen, left, able;
    for (;;) {
        seen = atomic_load(&answers);
        left = missing(&able);
        if (!left || clock_ms() - start >= (able ? ANSWER_MS : SLOW_MS))
            return left;
        futex_sleep(&answers, seen, TICK_MS);
    }
}

/* Threads that were created meanwhile are found by listing again, until no thread is left that could create one. */
static bool ask_all(void)
{
    struct round round;
    do {
        round = (struct round){.asked = 0};
        if (!each_thread(ask, &round))
            return false;
        world.running = wait_for_answers() + round.beyond;
    } while (round.asked);
    return true;
}

static bool prepare(uintptr_t low)
{
    stack_t alternate = {.ss_flags = SS_DISABLE};
    world.bytes = THREADS_MOST * sizeof(struct world_thread);
    world.threads = vm_map(world.bytes, 1);
    if (!world.threads)
        return false;
    sys_call3(SYS_sigaltstack, 0, (long)&alternate, 0);
    bool there = alternate.ss_flags & SS_ONSTACK;
    process = (uint32_t)sys_call3(SYS_getpid, 0, 0, 0);
    self = (uint32_t)sys_call3(SYS_gettid, 0, 0, 0);
    world.threads[0] = (struct world_thread){
        .id = self,
        .stopped = true,
        .pointer = (uintptr_t)__builtin_thread_pointer(),
        .low = there ? 0 : low,
        .alternate = alternate.ss_flags & SS_DISABLE ? 0 : (uintptr_t)alternate.ss_sp,
    };
    atomic_store(&world.count, 1);
    world.running = 0;
    atomic_store(&resumed, 0);
    atomic_store(&parking, true);
    return true;
}

struct world *world_stop(uintptr_t low)
{
    struct blocked blocked = {.others = false};
    uint64_t all = ~0ull;
    if (!prepare(low))
        return NULL;
    sys_call(SYS_rt_sigprocmask, SIG_BLOCK, (long)&all, (long)&mask_before, sizeof(all), 0, 0);
    stop_signal = 0;
    if (each_thread(count_blocked, &blocked)) {
        if (blocked.others)
            stop_signal = choose_signal(&blocked);
        install();
        if (ask_all())
            return &world;
    }
    world_resume(&world);
    return NULL;
}

void world_resume(struct world *stopped)
{
    atomic_store(&parking, false);
    atomic_store(&resumed, 1);
    futex_wake_all(&resumed);
    if (stop_signal)
        uninstall();
    sys_call(SYS_rt_sigprocmask, SIG_SETMASK, (long)&mask_before, 0, sizeof(mask_before), 0, 0);
    for (uint32_t i = 0; i < atomic_load(&stopped->count); i++)
        if (!atomic_load(&stopped->threads[i].stopped))
            return; /* a late handler may be about to read the table: it stays */
    vm_unmap(stopped->threads, stopped->bytes);
}

bool world_has(const struct world *stopped, uintptr_t pointer)
{
    for (uint32_t i = 0; i < atomic_load(&stopped->count); i++)
        if (atomic_load(&stopped->threads[i].stopped) && stopped->threads[i].pointer == pointer)
            return true;
    return false;
}
