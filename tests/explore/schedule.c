/* The points of an execution, and who runs. */
#define _GNU_SOURCE
#include "explore.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct shared *shared;
char *explore_failed;
struct thread threads[THREADS_MOST];
_Thread_local struct thread *me;

static const struct scenario *scenario;
static unsigned count, spent;
static struct thread *on_cpu[CPUS]; /* who runs there, or ran there last */
static struct fiber main_fiber;
static struct thread *beginning; /* whom the latest switch went to; a new one learns by it who it is */

_Noreturn void explore_fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(explore_failed ? explore_failed : shared->message, sizeof(shared->message), format, arguments);
    va_end(arguments);
    shared->failed = true;
    if (shared->log)
        fprintf(stderr, "thread %d: %s\n", me ? (int)me->number : -1,
                explore_failed ? explore_failed : shared->message);
    _exit(1);
}

/* ---- who runs ---- */

/* The thread takes its CPU; whoever was there is preempted. */
static void take_cpu(struct thread *thread)
{
    struct thread *other = on_cpu[thread->cpu];
    if (other && other != thread) {
        stores_drain(other);
        section_abort(other);
    }
    on_cpu[thread->cpu] = thread;
}

static void switch_to(struct thread *other)
{
    struct thread *self = me;
    if (on_cpu[other->cpu] == self)
        stores_drain(self);
    stores_hide(self);
    take_cpu(other);
    other->state = RUNNABLE;
    beginning = other;
    fiber_switch(&self->fiber, &other->fiber);
    take_cpu(self); /* if it was preempted, it is back */
    stores_show(self);
}

static unsigned others(struct thread **found, bool yielded)
{
    unsigned n = 0;
    for (unsigned i = 0; i < count; i++)
        if (&threads[i] != me && (threads[i].state == RUNNABLE || (yielded && threads[i].state == YIELDED)))
            found[n++] = &threads[i];
    return n;
}

/* ---- choices ---- */

static uint64_t random_next(void)
{
    shared->seed ^= shared->seed << 13;
    shared->seed ^= shared->seed >> 7;
    shared->seed ^= shared->seed << 17;
    return shared->seed >> 11;
}

/* One of so many options; option 0 is free, and so are the others with `free`. */
static unsigned choose(unsigned options, bool free)
{
    unsigned n = shared->points, chosen = 0;
    if (options < 2)
        return 0;
    if (n >= POINTS_MOST)
        explore_fail("the execution does not end");
    if (n < shared->prefix) {
        chosen = shared->choices[n].chosen;
        if (chosen >= options)
            explore_fail("explorer: the execution differs from the one that is repeated, at point %u", n);
    } else if (shared->random && (free || (spent < shared->deviations && !(random_next() % shared->odds)))) {
        chosen = (unsigned)(random_next() % options);
    }
    if (!free && chosen)
        spent++;
    shared->choices[n] = (struct choice){(uint8_t)options, (uint8_t)chosen};
    shared->points = n + 1;
    return chosen;
}

static void must_not_wait_for_ever(void)
{
    static unsigned waits;
    if (++waits > 100000)
        explore_fail("threads wait for each other for ever");
}

/* The thread cannot go on: another one has to. */
static void leave(void)
{
    struct thread *found[THREADS_MOST];
    unsigned n = others(found, false);
    if (!n)
        n = others(found, true);
    must_not_wait_for_ever();
    if (n) {
        switch_to(found[choose(n, true)]);
        return;
    }
    if (me->state == BLOCKED)
        explore_fail("thread %u waits for a lock, and no thread can go on", me->number);
    if (me->state == ENDED)
        fiber_switch(&me->fiber, &main_fiber);
    me->state = RUNNABLE;
}

static void migrate(void)
{
    stores_drain(me);
    section_abort(me);
    me->cpu = (me->cpu + 1) % CPUS;
    *me->cpu_field = (int32_t)me->cpu;
    take_cpu(me);
}

static void run_handler(void)
{
    section_abort(me);
    me->handlers++;
    const struct section *section = me->section;
    bool aborted = me->aborted;
    me->section = NULL;
    me->aborted = false;
    scenario->handler();
    me->section = section;
    me->aborted = aborted;
}

enum deed { SWITCH, ABORT, MIGRATE, SIGNAL, BUFFER };

/* The words that threads have touched. Returns whether several have, and one has written. */
static bool is_shared(enum access access, uintptr_t at)
{
    uintptr_t key = at & ~(uintptr_t)7;
    unsigned i = (unsigned)((key >> 3) * 0x9e3779b97f4a7c15ull >> 40) % WORDS;
    struct word *word;
    for (;; i = (i + 1) % WORDS) {
        word = &shared->touched[i];
        if (!word->at)
            word->at = key;
        if (word->at == key)
            break;
    }
    uint8_t self = (uint8_t)(1u << me->number);
    if (access != WRITE)
        word->readers |= self;
    if (access != READ)
        word->writers |= self;
    uint8_t all = word->readers | word->writers;
    if (!word->shared && word->writers && (all & (all - 1)))
        shared->grown = true;
    return word->shared;
}

static bool at_point(enum access access, bool store)
{
    struct thread *found[THREADS_MOST];
    struct {
        enum deed deed;
        struct thread *to;
    } options[THREADS_MOST + 5];
    unsigned n = 1;
    if (spent < shared->deviations) {
        unsigned m = others(found, true);
        for (unsigned i = 0; i < m; i++) {
            options[n].deed = SWITCH;
            options[n++].to = found[i];
        }
        if (me->section)
            options[n++].deed = ABORT;
        options[n++].deed = MIGRATE;
        if (scenario->handler && !me->handlers && !me->blocked)
            options[n++].deed = SIGNAL;
        if (store && !me->stores)
            options[n++].deed = BUFFER;
    }
    (void)access;
    unsigned chosen = choose(n, false);
    if (!chosen)
        return false;
    switch (options[chosen].deed) {
    case SWITCH:
        switch_to(options[chosen].to);
        return false;
    case ABORT:
        section_abort(me);
        return false;
    case MIGRATE:
        migrate();
        return false;
    case SIGNAL:
        run_handler();
        return false;
    case BUFFER:
        break;
    }
    return true;
}

static void log_point(const char *what, uintptr_t at, size_t size)
{
    uint64_t value = 0;
    memcpy(&value, (void *)at, size > 8 ? 8 : size);
    fprintf(stderr, "%6u thread %u cpu %u %s %zu bytes at %#lx (%#lx) %s\n", shared->points, me->number, me->cpu,
            what, size, at, value, section_where(me));
}

bool point(enum access access, uintptr_t at, size_t size, bool plain)
{
    if (!is_shared(access, at) && !shared->all_words)
        return false; /* nobody else sees it, so its order does not matter; it may be a stack, which code without
                         instrumentation writes as well */
    if (shared->log)
        log_point(access == READ ? "reads" : access == WRITE ? "writes" : "updates", at, size);
    if (plain && !shared->plain)
        return me->stores && access == WRITE;
    return at_point(access, access == WRITE) || (me->stores && access == WRITE);
}

void point_always(const char *why)
{
    if (shared->log)
        fprintf(stderr, "%6u thread %u cpu %u %s\n", shared->points, me->number, me->cpu, why);
    at_point(UPDATE, false);
}

void schedule_yield(void)
{
    me->state = YIELDED;
    leave();
}

long schedule_wait(const uint32_t *futex, uint32_t value)
{
    point_always("waits for a lock");
    if (__atomic_load_n(futex, __ATOMIC_SEQ_CST) != value)
        return -11; /* EAGAIN */
    me->futex = futex;
    me->state = BLOCKED;
    leave();
    return 0;
}

long schedule_wake(const uint32_t *futex)
{
    long n = 0;
    for (unsigned i = 0; i < count; i++)
        if (threads[i].state == BLOCKED && threads[i].futex == futex) {
            threads[i].state = RUNNABLE;
            n++;
        }
    return n;
}

/* ---- one execution ---- */

static void thread_main(void)
{
    me = beginning;
    sections_area(me);
    take_cpu(me);
    scenario->run[me->number]();
    stores_settle(me);
    stores_drain(me);
    me->state = ENDED;
    if (on_cpu[me->cpu] == me)
        on_cpu[me->cpu] = NULL;
    leave();
    __builtin_unreachable();
}

void schedule_run(const struct scenario *which)
{
    scenario = which;
    shared->points = 0;
    shared->failed = false;
    for (count = 0; count < THREADS_MOST && which->run[count]; count++) {
        threads[count] = (struct thread){.number = count, .cpu = which->cpu[count]};
        fiber_begin(&threads[count].fiber, count, thread_main);
    }
    main_fiber = fiber_self();
    beginning = &threads[choose(count, true)];
    fiber_switch(&main_fiber, &beginning->fiber);
    which->check();
}
