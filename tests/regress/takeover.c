/*
 * A take-over that meets a section of the slot and then the slot's own fold. Two threads on two CPUs are stopped
 * where it matters: the taker in its membarrier, which a filter turns into a signal; the slot's thread in its fold,
 * where it counts, on a page that may not be written. It sees the internal headers.
 */
#define _GNU_SOURCE
#include "../cases.h"
#include "cache/config.h"
#include "cache/kmem_cache.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>

enum { FIRST = 20, OBJECTS = 6000, RSEQ_BARRIER = 1 << 7 };

static struct kmem_cache *cache;
static void *first[FIRST], *all[OBJECTS];
static unsigned slot, taker_cpu;
static volatile int take_now, late, folding, taken_over;

/* Slots are CPUs, and nothing is given back on its own. */
void sheaf_configure(struct sheaf_config *config)
{
    config->slots = SLOTS_CPU_ID;
    config->decay_ms = 0;
}

static void pin(unsigned cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    must(sched_setaffinity(0, sizeof(set), &set) == 0);
}

static uint64_t *word(void)
{
    return &slot_words(slot, SLOT_ID(cache->number))->top;
}

static void counters_writable(bool yes)
{
    must(mprotect(counter_at(slot, 0, 0), COUNTER_BLOCK, yes ? PROT_READ | PROT_WRITE : PROT_READ) == 0);
}

/* ---- the taker ---- */

/* What a push does that had read the word before the taker changed it. */
static uint64_t seen;
static void commit_late_push(void *object)
{
    void **at = sheaf_entry(top_offset(seen));
    must((uintptr_t)at[0] != sheaf_full_mark());
    *at = object;
    __atomic_store_n(word(), seen + 8, __ATOMIC_SEQ_CST);
}

/* The word is held now. No section is under way, so the barrier has nothing to do: it is told to have succeeded. */
static void in_barrier(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)info;
    if (!late && read_once(*word()) == TOP_HELD) {
        commit_late_push(first[FIRST - 1]);
        counters_writable(false);
        late = 1;
        while (!folding)
            sched_yield();
    }
    ucontext_t *at = context;
#if defined(__x86_64__)
    at->uc_mcontext.gregs[REG_RAX] = 0;
#else
    at->uc_mcontext.regs[0] = 0;
#endif
}

static void stop_in_barriers(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, RSEQ_BARRIER, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof(code) / sizeof(code[0]), code};
    struct sigaction action = {.sa_sigaction = in_barrier, .sa_flags = SA_SIGINFO};
    must(sigaction(SIGSYS, &action, NULL) == 0);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
        _exit(CASE_SKIPPED);
}

static void *take(void *unused)
{
    pin(taker_cpu);
    stop_in_barriers();
    while (!take_now)
        sched_yield();
    kmem_cache_shrink(cache);
    must(late);
    taken_over = 1;
    return unused;
}

/* ---- the slot's own thread ---- */

static void in_fold(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)context;
    uintptr_t at = (uintptr_t)info->si_addr - (uintptr_t)counter_at(slot, 0, 0);
    must(at < COUNTER_BLOCK);
    uint64_t now = read_once(*word());
    must(now && !top_offset(now)); /* held for the fold */
    counters_writable(true);
    folding = 1;
    while (!taken_over)
        sched_yield();
}

/* The next allocation folds; there is room for one object more. */
static void prepare(void)
{
    cache = kmem_cache_create("raced", 64, NULL, 0);
    must(cache);
    if (slot_mode != SHEAF_MODE_RSEQ_CPU_ID || !counters_area)
        _exit(CASE_SKIPPED);
    for (int i = 0; i < FIRST; i++)
        must((first[i] = kmem_cache_alloc(cache, 0)));
    for (int i = 0; i < FIRST / 2; i++)
        kmem_cache_free(cache, first[i]);
    while (!top_full_count(read_once(*word())))
        kmem_cache_free(cache, kmem_cache_alloc(cache, 0));
    seen = read_once(*word());
    must(top_depth(seen) > 0);
}

static int by_address(const void *a, const void *b)
{
    uintptr_t x = *(const uintptr_t *)a, y = *(const uintptr_t *)b;
    return x < y ? -1 : x > y;
}

static void no_object_twice(void)
{
    int twice = 0;
    qsort(all, OBJECTS, sizeof(all[0]), by_address);
    for (int i = 1; i < OBJECTS; i++)
        twice += all[i] == all[i - 1];
    if (twice)
        dprintf(2, "%d objects were handed out twice\n", twice);
    must(!twice);
}

static void choose_cpus(void)
{
    cpu_set_t set;
    must(sched_getaffinity(0, sizeof(set), &set) == 0);
    if (CPU_COUNT(&set) < 2)
        _exit(CASE_SKIPPED);
    while (!CPU_ISSET(slot, &set))
        slot++;
    taker_cpu = slot + 1;
    while (!CPU_ISSET(taker_cpu, &set))
        taker_cpu++;
    pin(slot);
}

static void fold_within_takeover(void)
{
    choose_cpus();
    prepare();
    struct sigaction action = {.sa_sigaction = in_fold, .sa_flags = SA_SIGINFO};
    must(sigaction(SIGSEGV, &action, NULL) == 0);
    pthread_t taker;
    must(pthread_create(&taker, NULL, take, NULL) == 0);
    take_now = 1;
    while (!late)
        sched_yield();
    int n = 0;
    all[n++] = kmem_cache_alloc(cache, 0);
    must(pthread_join(taker, NULL) == 0);
    for (int i = FIRST / 2; i < FIRST - 1; i++)
        all[n++] = first[i];
    while (n < OBJECTS)
        must((all[n++] = kmem_cache_alloc(cache, 0)));
    no_object_twice();
}

static const struct test_case cases[] = {
    {"a-slot-folds-while-it-is-taken-over-after-a-late-push", fold_within_takeover},
};

int main(int argc, char **argv)
{
    return run_cases(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
