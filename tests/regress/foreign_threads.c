/* The fast paths while there are foreign threads (platform/os/foreign.h), and after the last of them has ended. */
#define _GNU_SOURCE
#include "../cases.h"
#include "front/malloc/classes.h"
#include "platform/os/foreign.h"
#include "platform/os/syscall.h"
#include "process/census.h"
#include "process/decay.h"
#include "sheaf/malloc.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

enum { ROUNDS = 400, BLOCKS = 100, THREADS = 3 };

static bool sections(void)
{
    return slot_mode == SHEAF_MODE_RSEQ_MM_CID || slot_mode == SHEAF_MODE_RSEQ_CPU_ID;
}

static void needs_sections(void)
{
    sheaf_free(sheaf_malloc(1));
    if (!sections())
        _exit(CASE_SKIPPED);
}

static bool paused(void)
{
    const struct slot_head *head = slot_head(0);
    must(!head->limit == (head->lowest == UINTPTR_MAX) && !head->limit == !counters_area);
    return !head->limit;
}

static void works(void)
{
    static _Thread_local void *blocks[BLOCKS];
    for (unsigned i = 0; i < BLOCKS; i++)
        must(blocks[i] = sheaf_malloc(1 + i * 37 % 4000));
    for (unsigned i = 0; i < BLOCKS; i++)
        sheaf_free(blocks[i]);
}

/* Slow paths look from time to time whether foreign threads have ended. */
static void resumes(void)
{
    for (int i = 0; i < 1000 && paused(); i++)
        works();
    must(!paused() && !foreign_threads);
}

CASE(pauses_and_resumes)
{
    needs_sections();
    must(!paused() && !foreign_here());
    _Atomic uint32_t *word = foreign_add((uintptr_t)__builtin_thread_pointer(), 0, FOREIGN_CLONES);
    slot_pause_fast();
    must(word && paused() && !foreign_here());
    works();
    must(paused());
    foreign_begin(word);
    must(foreign_here() && is_foreign_name(lock_self()));
    works();
    must(paused());
    *word = 0; /* as the kernel does at the thread's end */
    must(!foreign_here());
    resumes();
}

/* A thread whose word the kernel does not clear has ended when there is no thread of its number. */
CASE(ended_threads_are_found)
{
    needs_sections();
    _Atomic uint32_t *word = foreign_add((uintptr_t)__builtin_thread_pointer(), 0, FOREIGN_CLONES);
    slot_pause_fast();
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    foreign_made(word, (uint32_t)pid);
    *word = (uint32_t)pid;
    must(!foreign_sweep()); /* a zombie is there */
    must_succeed(pid);
    resumes();
}

/* Growth of the region writes the limit of the fast free, which must stay paused. */
CASE(growth_leaves_it_paused)
{
    needs_sections();
    _Atomic uint32_t *word = foreign_add((uintptr_t)__builtin_thread_pointer(), 0, FOREIGN_CLONES);
    slot_pause_fast();
    uint32_t before = space.slice_count;
    while (space.slice_count == before)
        must(sheaf_malloc(64 << 20));
    must(paused());
    foreign_remove(word);
    slot_resume_fast();
    must(!paused());
    works();
}

static _Atomic bool stop;

static void *churn(void *unused)
{
    while (!stop)
        works();
    return unused;
}

/* A foreign thread, except that it has thread-local data of its own, in which libc's functions may leave what they
 * like. */
static void *churn_as_foreign(void *unused)
{
    for (unsigned i = 0; i < ROUNDS && !stop; i++) {
        _Atomic uint32_t *word = foreign_add((uintptr_t)__builtin_thread_pointer(), 0, FOREIGN_CLONES);
        must(word);
        slot_pause_fast();
        foreign_begin(word);
        works();
        *word = 0;
        works();
    }
    stop = true;
    return unused;
}

CASE(threads_come_and_go)
{
    pthread_t threads[THREADS], foreign;
    needs_sections();
    for (int i = 0; i < THREADS; i++)
        must(!pthread_create(&threads[i], NULL, churn, NULL));
    must(!pthread_create(&foreign, NULL, churn_as_foreign, NULL) && !pthread_join(foreign, NULL));
    for (int i = 0; i < THREADS; i++)
        must(!pthread_join(threads[i], NULL));
    resumes();
    cache_drain_all();
    for (unsigned i = CACHE_FIRST; i < cache_top; i++)
        if (cache_in_use(cache_at(i)))
            must(cache_at(i)->slab.slabs * cache_at(i)->slab.objects - cache_at(i)->slab.free < BLOCKS);
}
