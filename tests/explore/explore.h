/*
 * A deterministic explorer of the library's own source.
 *
 * The library is compiled with -fsanitize=thread and linked without the sanitizer's runtime: the explorer defines the
 * functions that the compiler calls before each access to memory and in place of each atomic operation (memory.c).
 * Sections of rseq are executed from their machine code, one instruction at a time (sections.c). System calls
 * go through sys_call() (system.c).
 *
 * A scenario has two or three threads, which one system thread plays (fiber.h). Where a thread is about to
 * touch a word that several threads touch, it is at a point (schedule.c), and one of these things happens:
 *
 *   - the thread goes on;
 *   - another thread goes on, on another CPU or, preempting, on the same one;
 *   - a section is aborted, because a signal came or the thread was preempted for a moment;
 *   - the thread migrates to another CPU;
 *   - a signal handler runs;
 *   - the store that comes next stays in the CPU's store buffer, with those that follow it, as on x86. It becomes
 *     visible with the next locked instruction, fence or system call of its thread, or when that is preempted.
 *
 * All but the first cost one of a number of deviations, so that an exhaustive search ends: it visits each execution
 * with at most that many (context bounding). A random search goes beyond. Each execution is a process of its own,
 * made by fork() from one that has prepared the scenario.
 *
 * What is not explored: orders of memory that x86 does not have (tests/litmus), a store that becomes visible while
 * its thread does nothing, and the compiler's own reordering.
 */
#ifndef SHEAF_EXPLORE_H
#define SHEAF_EXPLORE_H

#include "fiber.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- scenarios (scenarios.c) ---- */

#define THREADS_MOST 3
#define CPUS         2

struct scenario {
    const char *name;
    void (*prepare)(void);           /* in the process that all executions are forked from */
    void (*run[THREADS_MOST])(void); /* the threads; the first missing one ends the list */
    unsigned cpu[THREADS_MOST];      /* where they start */
    void (*handler)(void);           /* of a signal that comes once to each thread; NULL: none comes */
    void (*check)(void);             /* after all threads have ended */
};
extern const struct scenario scenarios[];
extern const unsigned scenario_count;

/* The execution has failed; it ends here. */
_Noreturn __attribute__((format(printf, 1, 2))) void explore_fail(const char *format, ...);

/* Set by `prepare` before the library starts: changes its options. */
struct sheaf_config;
extern void (*explore_configure)(struct sheaf_config *config);

/* Let the clock go on. */
void explore_sleep(unsigned ms);

/* fork() in the calling thread, with the library's handlers. `child` runs in the child, to its end. */
void explore_fork(void (*child)(void));
extern char *explore_failed; /* where a failure is described */

/* ---- one execution (schedule.c) ---- */

#define POINTS_MOST 60000
#define WORDS       (1u << 14) /* slots of the table of words */

enum access { READ, WRITE, UPDATE };

/* At a point: how many things were possible, and which one happened. */
struct choice {
    uint8_t options, chosen;
};

/* A word of 8 bytes, and which threads have read and written it. */
struct word {
    uintptr_t at;
    uint8_t readers, writers;
    bool shared; /* accesses are points; set between rounds, so that a repetition finds the same points */
};

/* What the process of an execution shares with the one that chooses. */
struct shared {
    /* what to do */
    unsigned deviations; /* the most */
    bool random;         /* choose at random where `prefix` ends; otherwise go on with the first option */
    uint64_t seed;
    unsigned odds;   /* a random choice deviates at one point in so many */
    bool log;        /* print each point */
    unsigned prefix; /* choices that are given */
    bool all_words;  /* each word is shared: until it is known which ones are */
    bool plain;      /* plain accesses are points, too */
    /* what has happened */
    unsigned points;
    bool failed;
    char message[512];
    uint64_t hash;
    struct choice choices[POINTS_MOST];
    /* words that threads have touched, over all executions, and the shared ones among them */
    bool grown; /* a word has become shared in this execution */
    struct word touched[WORDS];
};
extern struct shared *shared;

/* The stores that are on their way from a CPU to memory, in their order. */
#define BUFFERED_MOST 8
struct store {
    uintptr_t at;
    uint8_t size;
    bool captured; /* `value` is known: the instruction has been executed */
    uint64_t value;
    uint64_t under; /* what memory holds for the others, while the thread runs */
};

struct section; /* a descriptor of rseq */

struct thread {
    unsigned number, cpu;
    enum { RUNNABLE, YIELDED, BLOCKED, ENDED } state;
    const uint32_t *futex;
    struct fiber fiber;
    struct store buffered[BUFFERED_MOST];
    unsigned stores;
    /* sections.c */
    const struct section *section; /* it is inside */
    bool aborted;
    unsigned handlers;  /* signal handlers that have begun */
    uint64_t blocked;   /* its signal mask */
    int32_t *cpu_field; /* of its rseq area */
};
extern struct thread threads[THREADS_MOST];
extern _Thread_local struct thread *me; /* NULL: nothing is explored here */

void schedule_run(const struct scenario *scenario); /* all threads, to their end */

/*
 * The calling thread is about to touch `size` bytes. Returns whether a store is to be buffered. `plain`: the source
 * has no atomic operation there, so a lock should protect it.
 */
bool point(enum access access, uintptr_t at, size_t size, bool plain);
void point_always(const char *why); /* before a system call or a barrier */

void schedule_yield(void);
void explore_relax(void);
long schedule_wait(const uint32_t *futex, uint32_t value);
long schedule_wake(const uint32_t *futex);

/* ---- store buffers (memory.c) ---- */

void stores_settle(struct thread *thread); /* note the value of the latest store, which has been executed */
void stores_drain(struct thread *thread);  /* all of them become visible; `thread` need not be running */
void stores_hide(struct thread *thread);   /* before others run: memory shows what is visible to them */
void stores_show(struct thread *thread);   /* before it runs: memory shows its own stores */
void stores_expect(struct thread *thread, uintptr_t at, size_t size); /* the next instruction stores there */

/* ---- sections (sections.c) ---- */

void sections_init(void);                  /* once; sets traps */
void section_abort(struct thread *thread); /* if it is inside one */
void sections_area(struct thread *thread); /* the thread's own area exists */
void sections_prepare_on(unsigned cpu);    /* while a scenario is prepared: the calling thread's CPU */
const char *section_where(const struct thread *thread);

#endif
