/*
 * A test is one row: how to prepare it, the part that is timed, how to clean up. To add one, write a row into the
 * table of the file that it belongs to; a new file adds its table to the program's list in tables.c.
 */
#ifndef BENCH_TEST_H
#define BENCH_TEST_H

#include "measure.h"

#include <pthread.h>

enum order { FIFO, LIFO, SHUFFLED };

/* What an op costs: wall time, the CPU time of all threads (without what note_memory() took), or nothing worth
 * telling: such a test is about memory alone. */
enum timing { WALL_TIME, CPU_TIME, NO_TIME };

struct test {
    const char *name;
    const char *what;     /* one line for --list; says what one op is */
    uint64_t ops;         /* in one repetition, unless --ops says otherwise */
    unsigned repetitions; /* timed ones */
    _Bool cold;           /* no warm-up: the first touch is what is measured */
    enum timing timing;

    /* Parameters that rows of one function differ in. */
    size_t size;
    size_t count;
    enum order order;
    _Bool blind;       /* objects of other threads are freed without being read */
    const void *shape; /* further ones, known to the test's own file */

    void (*prepare)(const struct test *);               /* not timed, may be NULL */
    uint64_t (*run)(const struct test *, uint64_t ops); /* does about `ops`, at least one; returns how many it did */
    void (*linger)(const struct test *);                /* not timed, but its memory counts, may be NULL */
    void (*finish)(const struct test *);                /* neither, may be NULL */
};

/*
 * --spread: the n-th thread started gets the n-th of the CPUs that the process may use, and so on around; without it
 * the scheduler decides.
 */
extern _Bool spread;

/* --ops was given: a look, not a measurement, so waits are cut short. */
extern _Bool brief;

/* Starts a thread, the n-th of its test. */
pthread_t start_thread(unsigned n, void *(*body)(void *), void *argument);

/*
 * Remembers the resident memory of now for the result, by name at the moments that a table should show, with NULL
 * between them. In a repetition only the first time; not more than some hundred times.
 */
void note_memory(const char *moment);

/* Bytes that the test has allocated and not freed, kept by tests that are not about wall time: the floor of what can
 * be resident, noted with it. */
extern uint64_t bytes_live;

void sleep_ms(uint64_t milliseconds);

/* Of this program: tables of tests, each of which ends with a row without a name; then NULL. */
extern const struct test *const tables[];

#endif
