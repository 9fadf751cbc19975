/* The system as the code under exploration sees it: locks, barriers, the clock; the rest is the kernel's. */
#define _GNU_SOURCE
#include "explore.h"
#include "platform/arch/x86_64/syscall.h"
#include "platform/config/config.h"
#include "platform/os/cpu.h"
#include "process/fork.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static uint32_t now_ms = 1000000;

void explore_sleep(unsigned ms)
{
    now_ms += ms;
}

static long kernel(long nr, long a, long b, long c, long d, long e, long f)
{
    long ret = syscall(nr, a, b, c, d, e, f);
    return ret == -1 ? -errno : ret;
}

/* Reaches one CPU after the other: what runs there becomes visible, and a section starts again. */
static long barrier(void)
{
    for (unsigned i = 0; i < THREADS_MOST; i++) {
        if (&threads[i] == me)
            continue;
        point_always("waits for a barrier");
        stores_drain(&threads[i]);
        section_abort(&threads[i]);
    }
    return 0;
}

static long decided(long nr, long a, long b, long c)
{
    stores_settle(me);
    stores_drain(me);
    switch (nr) {
    case SYS_futex:
        if (((int)b & FUTEX_CMD_MASK) == FUTEX_WAIT)
            return schedule_wait((const uint32_t *)a, (uint32_t)c);
        if (((int)b & FUTEX_CMD_MASK) == FUTEX_WAKE)
            return schedule_wake((const uint32_t *)a);
        return -ENOSYS;
    case SYS_membarrier:
        return barrier();
    case SYS_rt_sigprocmask:
        if (c)
            *(uint64_t *)c = me->blocked;
        if (b && (int)a == SIG_SETMASK)
            me->blocked = *(const uint64_t *)b;
        return 0;
    default:
        return 1;
    }
}

long sys_call(long nr, long a, long b, long c, long d, long e, long f)
{
    if (me) {
        long ret = decided(nr, a, b, c);
        if (ret <= 0)
            return ret;
    }
    if (nr == SYS_getcpu && me) {
        *(unsigned *)a = me->cpu;
        if (b)
            *(unsigned *)b = 0;
        return 0;
    }
    if (nr == SYS_getrandom) { /* the same in each execution */
        memset((void *)a, 7, (size_t)b);
        return b;
    }
    return kernel(nr, a, b, c, d, e, f);
}

void explore_relax(void)
{
    if (me)
        schedule_yield();
}

int sched_yield(void)
{
    explore_relax();
    return 0;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    uint32_t ms = clock == CLOCK_THREAD_CPUTIME_ID ? 0 : now_ms;
    now->tv_sec = ms / 1000;
    now->tv_nsec = ms % 1000 * 1000000;
    return 0;
}

/* ---- platform/os/cpu.h ---- */

unsigned cpu_allowed_count = CPUS;

void cpu_count(unsigned *possible, unsigned *allowed)
{
    *possible = *allowed = CPUS;
}

unsigned cpu_current(void)
{
    return me ? me->cpu : 0;
}

unsigned cpu_llc(void)
{
    return 0;
}

void (*explore_configure)(struct sheaf_config *config);

/* Small limits, so that each edge is near. */
void sheaf_configure(struct sheaf_config *config)
{
    config->helper = HELPER_OFF;
    config->huge = false;
    config->chosen.huge = true;
    config->slot_budget = 1 << 20;
    config->barn = 256;
    config->barn_max = 512;
    if (explore_configure)
        explore_configure(config);
}

/* ---- fork ---- */

/* The child has the forking thread alone. It makes no choices, and the execution that is shared does not see it. */
static _Noreturn void run_child(void (*child)(void))
{
    struct shared *copy = malloc(sizeof(*copy));
    memcpy(copy, shared, sizeof(*copy));
    copy->deviations = 0;
    copy->prefix = 0;
    copy->points = 0;
    copy->random = false;
    struct shared *real = shared;
    shared = copy;
    for (unsigned i = 0; i < THREADS_MOST; i++)
        if (&threads[i] != me)
            threads[i].state = ENDED;
    explore_failed = real->message;
    cache_fork_child();
    child();
    _exit(0);
}

void explore_fork(void (*child)(void))
{
    int status = 0;
    cache_fork_prepare();
    stores_drain(me);
    long pid = syscall(SYS_fork);
    if (!pid)
        run_child(child);
    while (pid < 0 || (waitpid((pid_t)pid, &status, 0) < 0 && errno == EINTR)) {
        if (pid < 0)
            explore_fail("explorer: fork was refused");
    }
    if (status)
        explore_fail("in the child: %.400s", WIFSIGNALED(status) ? "ended by a signal" : strdup(shared->message));
    cache_fork_parent();
}
