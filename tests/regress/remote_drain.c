/*
 * A remote drain races with a section that read the word before the remote drain changed it and stores afterwards. A
 * filter turns the membarrier of the thread that takes over into a signal, whose handler then does what such a
 * section does: it stores one half of the word, or both. Includes internal headers.
 */
#define _GNU_SOURCE
#include "../cases.h"
#include "../pin.h"
#include "platform/config/config.h"
#include "cache/ends.h"
#include "process/census.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>

enum { FIRST = 20, OBJECTS = 6000, RSEQ_BARRIER = 1 << 7 };

static struct kmem_cache *cache;
static void *live[OBJECTS];
static int n_live;
static unsigned slot, taker_cpu;
static volatile bool late;

/* Slots are CPUs, and there is no decay. */
void sheaf_configure(struct sheaf_config *config)
{
    config->slots = SLOTS_CPU_ID;
    config->decay_ms = 0;
}

static uint64_t *word(void)
{
    return &slot_words(slot, word_id(cache->number))->top;
}

/* ---- what a late section does; `seen` is the word that it has read ---- */

static uint64_t seen;
static void (*commit_late)(void);

static void store_half(int half, struct end end)
{
    __atomic_store_n((uint32_t *)word() + half, end.at, __ATOMIC_SEQ_CST);
}

static void push(void)
{
    struct end end = cache->lifo ? top_pop_end(seen) : top_push_end(seen);
    void **at = sheaf_entry(end);
    must((uintptr_t)at[0] != sheaf_full_mark());
    *at = live[--n_live];
    store_half(!cache->lifo, (struct end){end.at + 8});
}

static void pop(void)
{
    must(end_holds(top_pop_end(seen)));
    live[n_live++] = sheaf_entry(top_pop_end(seen))[-1];
    if (cache->lifo)
        __atomic_store_n(word(), seen + (1ull << 32) - 8, __ATOMIC_SEQ_CST);
    else
        store_half(0, (struct end){top_pop_end(seen).at - 8});
}

/* Like the section, moves the counts of both ends to the new push end before it commits. */
static void exchange(void)
{
    struct attached_sheaf *from = sheaf_containing(top_push_end(seen)), *to = sheaf_containing(top_pop_end(seen));
    must(!end_holds(top_pop_end(seen)));
    to->pushes = from->pushes + end_depth(top_push_end(seen));
    to->total = from->total;
    __atomic_store_n(word(), seen >> 32 | seen << 32, __ATOMIC_SEQ_CST);
}

/* The slot's own slow path compares the word before the ends are claimed, then detaches and reinstalls both. */
static void install(void)
{
    __atomic_store_n(word(), 0, __ATOMIC_SEQ_CST);
    struct ends ends = ends_fold(cache, slot, seen);
    __atomic_store_n(word(), ends_top(cache, slot, ends), __ATOMIC_SEQ_CST);
}

/* While the ends are claimed, a census does not count or access their sheaves. */
static void look(void)
{
    struct cache_census census;
    cache_census(cache, &census);
    must(census.in_sheaves == 0);
}

/* ---- the thread that takes over ---- */

/* Replaces the membarrier, which is not needed because no section is running: it seems to succeed. */
static void in_barrier(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)info;
    if (!late && top_pop_end(read_once(*word())).at == END_CLAIMED) {
        late = true;
        commit_late();
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
    must(pin(taker_cpu));
    stop_in_barriers();
    kmem_cache_shrink(cache);
    must(late);
    return unused;
}

/* ---- the slot's own thread ---- */

/* Gives both ends sheaves. With `used_up`, the sheaf of the pop end is empty. */
static void prepare(unsigned size, bool used_up)
{
    cache = kmem_cache_create("raced", size, NULL, 0);
    must(cache);
    if (slot_mode != SHEAF_MODE_RSEQ_CPU_ID || !counters_area)
        _exit(CASE_SKIPPED);
    for (n_live = 0; n_live < FIRST; n_live++)
        must((live[n_live] = kmem_cache_alloc(cache, 0)));
    for (int i = 0; i < 5; i++)
        kmem_cache_free(cache, live[--n_live]);
    while (used_up && end_holds(top_pop_end(read_once(*word()))))
        must((live[n_live++] = kmem_cache_alloc(cache, 0)));
    seen = read_once(*word());
    must(end_holds(cache->lifo ? top_pop_end(seen) : top_push_end(seen)));
}

static int by_address(const void *a, const void *b)
{
    uintptr_t x = *(const uintptr_t *)a, y = *(const uintptr_t *)b;
    return x < y ? -1 : x > y;
}

static void no_object_twice(void)
{
    int twice = 0;
    qsort(live, OBJECTS, sizeof(live[0]), by_address);
    for (int i = 1; i < OBJECTS; i++)
        twice += live[i] == live[i - 1];
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
    must(pin(slot));
}

static void race(unsigned size, bool used_up, void (*section)(void))
{
    choose_cpus();
    prepare(size, used_up);
    commit_late = section;
    pthread_t taker;
    must(pthread_create(&taker, NULL, take, NULL) == 0);
    must(pthread_join(taker, NULL) == 0);
    must(!top_claimed(read_once(*word())));
    cache_check(cache); /* the counts agree with the objects */
    while (n_live < OBJECTS)
        must((live[n_live++] = kmem_cache_alloc(cache, 0)));
    no_object_twice();
    cache_check(cache);
}

CASE(a_push_after_the_ends_were_held)
{
    race(64, false, push);
}
CASE(a_pop_after_the_ends_were_held)
{
    race(64, false, pop);
}
CASE(an_exchange_after_the_ends_were_held)
{
    race(64, true, exchange);
}
CASE(an_install_after_the_ends_were_held)
{
    race(64, false, install);
}
CASE(a_census_of_held_ends)
{
    race(64, false, look);
}
CASE(a_push_to_a_lifo_cache_after_its_end_was_held)
{
    race(2048, false, push);
}
CASE(a_pop_of_a_lifo_cache_after_its_end_was_held)
{
    race(2048, false, pop);
}
