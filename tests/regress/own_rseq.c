/*
 * The rseq area that Sheaf registers itself (platform/rseq/own.h): what threads do before they register, and those
 * that cannot. To be run with GLIBC_TUNABLES=glibc.pthread.rseq=0, where glibc has an area of its own.
 */
#define _GNU_SOURCE
#include "../cases.h"
#include "cache/slot/slot.h"
#include "front/malloc/fast.h"
#include "platform/os/syscall.h"
#include "platform/rseq/own.h"
#include "sheaf/malloc.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

enum { THREADS = 8, BLOCKS = 200, ROUNDS = 2000 };

static void start(void)
{
    sheaf_free(sheaf_malloc(1));
    if (slot_mode != SHEAF_MODE_RSEQ_OWN || !slot_fast)
        _exit(CASE_SKIPPED);
    must(own_area.state == OWN_REGISTERED);
}

static uint32_t number(void)
{
    return read_once(*(uint32_t *)((char *)__builtin_thread_pointer() + slot_head(0)->area.slot));
}

/* What the kernel says of this thread: registering the same area again fails with EBUSY. */
static bool kernel_knows(void)
{
    return sys_call(SYS_rseq, (long)&own_area, RSEQ_FIRST_SIZE, 0, (long)RSEQ_SIGNATURE, 0, 0) == -EBUSY;
}

static void works(void)
{
    static _Thread_local unsigned char *blocks[BLOCKS];
    for (unsigned round = 0; round < 20; round++) {
        for (unsigned i = 0; i < BLOCKS; i++) {
            size_t size = 1 + (i * 37 + round) % 4000;
            must(blocks[i] = sheaf_malloc(size));
            memset(blocks[i], (int)i, size);
        }
        for (unsigned i = 0; i < BLOCKS; i++) {
            must(blocks[i][0] == (unsigned char)i);
            sheaf_free(blocks[i]);
        }
    }
}

/* Whether fast paths of this thread find objects. */
static bool hits(void)
{
    for (int i = 0; i < 100; i++) {
        void *p = rseq_roots.cid_base == space.base ? malloc_try(64) : malloc_try_others(64);
        sheaf_free(p ? p : sheaf_malloc(64));
        if (p)
            return true;
    }
    return false;
}

static void in_thread(void *(*run)(void *), void *argument)
{
    pthread_t thread;
    must(pthread_create(&thread, NULL, run, argument) == 0);
    must(pthread_join(thread, NULL) == 0);
}

/* ---- before a thread registers ---- */

static void *misses_then_registers(void *block)
{
    must(own_area.state == OWN_CREATED && number() == space.slots);
    must(!malloc_try(64) && !free_try_at(rseq_roots.cid_base, block));
    must(!rseq_push(space.base, slice_push_id(slice_of(block)), block));
    must(!rseq_pop_local(space.base, word_id(CACHE_FIRST)) && !rseq_pop_lifo(space.base, word_id(CACHE_GAP - 1)));
    must(own_area.state == OWN_CREATED);
    void *own = sheaf_malloc(64);
    must(own && own_area.state == OWN_REGISTERED && number() < space.slots && kernel_knows());
    sheaf_free(own);
    sheaf_free(block);
    works();
    must(hits());
    return NULL;
}

/* libc reuses the memory of threads that have ended, so each thread must begin anew. */
CASE(fast_paths_miss_in_threads_that_have_not_registered)
{
    start();
    for (int i = 0; i < 50; i++)
        in_thread(misses_then_registers, sheaf_malloc(64));
}

static void *first_frees(void *block)
{
    sheaf_free(block);
    must(own_area.state == OWN_REGISTERED && kernel_knows());
    return NULL;
}

CASE(a_first_free_registers)
{
    start();
    for (size_t size = 8; size < 100000; size = size * 3 / 2 + 8)
        in_thread(first_frees, sheaf_malloc(size));
}

/* ---- signal handlers ---- */

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

static volatile sig_atomic_t handled;

static void on_signal(int number_of_signal)
{
    (void)number_of_signal;
    void *p = sheaf_malloc(1 + (size_t)handled % 3000);
    must(p);
    sheaf_free(p);
    handled++;
}

static void *is_interrupted(void *unused)
{
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1};
    event.sigev_notify_thread_id = gettid();
    timer_t timer;
    must(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    struct itimerspec often = {.it_value.tv_nsec = 20000, .it_interval.tv_nsec = 20000};
    must(timer_settime(timer, 0, &often, NULL) == 0);
    works();
    timer_delete(timer);
    return unused;
}

CASE(handlers_interrupt_threads_that_register)
{
    start();
    struct sigaction action = {.sa_handler = on_signal};
    must(sigaction(SIGUSR1, &action, NULL) == 0);
    for (int i = 0; i < 100; i++)
        in_thread(is_interrupted, NULL);
    must(handled > 0);
}

/* ---- other users of rseq ---- */

static void *registers_another_area(void *block)
{
    static _Thread_local struct {
        char bytes[RSEQ_FIRST_SIZE];
    } area __attribute__((aligned(RSEQ_FIRST_SIZE)));
    must(sys_call(SYS_rseq, (long)&area, RSEQ_FIRST_SIZE, 0, 0x1234567, 0, 0) == 0);
    sheaf_free(block);
    must(own_area.state == OWN_REFUSED && number() == space.slots);
    works();
    must(own_area.state == OWN_REFUSED && number() == space.slots);
    return NULL;
}

static void *works_beside(void *unused)
{
    for (int i = 0; i < 20; i++)
        works();
    return unused;
}

CASE(threads_of_other_users_work_without_sections)
{
    start();
    pthread_t beside[THREADS];
    for (int i = 0; i < THREADS; i++)
        must(pthread_create(&beside[i], NULL, works_beside, NULL) == 0);
    for (int i = 0; i < THREADS; i++)
        in_thread(registers_another_area, sheaf_malloc(100));
    must(own_area.state == OWN_REGISTERED && number() < space.slots);
    for (int i = 0; i < THREADS; i++)
        must(pthread_join(beside[i], NULL) == 0);
}

/* ---- forks ---- */

static void *forks(void *registered)
{
    if (registered)
        works();
    pid_t pid = fork();
    if (pid == 0) {
        must(own_area.state == (registered ? OWN_REGISTERED : OWN_CREATED));
        must(registered ? kernel_knows() : number() == space.slots);
        works();
        must(own_area.state == OWN_REGISTERED && kernel_knows());
        in_thread(misses_then_registers, sheaf_malloc(64));
        _exit(0);
    }
    must_succeed(pid);
    return NULL;
}

CASE(children_of_fork_inherit_the_registration)
{
    start();
    static int yes;
    in_thread(forks, NULL);
    in_thread(forks, &yes);
    forks(&yes);
}

/* The child of vfork() takes the place of its thread, which afterwards is registered itself. */
static void *stands_in(void *registered)
{
    if (registered)
        works();
    must(own_area.state == (registered ? OWN_REGISTERED : OWN_CREATED));
    must(rseq_stand_in(&slot_head(0)->area) == !registered); /* the kernel knows a registered thread already */
    if (!registered) {
        must(own_area.state == OWN_REGISTERED && kernel_knows());
        works();
    }
    own_set(&slot_head(0)->area, true);
    rseq_renew(&slot_head(0)->area);
    must(own_area.state == OWN_REGISTERED && kernel_knows() && number() < space.slots);
    works();
    return NULL;
}

CASE(a_stand_in_registers_its_thread)
{
    start();
    static int yes;
    in_thread(stands_in, NULL);
    in_thread(stands_in, &yes);
}

/* A thread whose registration ended, and is refused from then on, must miss again. */
static void *loses(void *unused)
{
    works();
    must(sys_call(SYS_rseq, (long)&own_area, RSEQ_FIRST_SIZE, UNREGISTER, (long)RSEQ_SIGNATURE, 0, 0) == 0);
    own_set(&slot_head(0)->area, false);
    must(own_area.state == OWN_REFUSED && number() == space.slots && !malloc_try(64));
    works();
    return unused;
}

CASE(a_lost_registration_makes_fast_paths_miss)
{
    start();
    in_thread(loses, NULL);
    works();
}

/* ---- counters ---- */

static void *counts(void *unused)
{
    for (int i = 0; i < ROUNDS; i++)
        count(0, CACHE_FIRST, COUNT_install_fail, 1);
    return unused;
}

CASE(threads_that_have_not_registered_count)
{
    start();
    uint64_t before = counter_sum(CACHE_FIRST, COUNT_install_fail);
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++)
        must(pthread_create(&thread[i], NULL, counts, NULL) == 0);
    for (int i = 0; i < THREADS; i++)
        must(pthread_join(thread[i], NULL) == 0);
    must(counter_sum(CACHE_FIRST, COUNT_install_fail) - before == THREADS * ROUNDS);
}
