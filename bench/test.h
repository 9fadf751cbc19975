/*
 * A test is one row: how to prepare it, the part that is timed, how to clean up. To add one, write a row into the
 * table of the file that it belongs to; a new file adds its table to the program's list in tables.c.
 */
#ifndef BENCH_TEST_H
#define BENCH_TEST_H

#include "measure.h"

#include <pthread.h>

enum order { FIFO, LIFO, SHUFFLED };

struct test {
    const char *name;
    const char *what;     /* one line for --list; says what one op is */
    uint64_t ops;         /* in one repetition, unless --ops says otherwise */
    unsigned repetitions; /* timed ones */
    _Bool cold;           /* no warm-up: the first touch is what is measured */

    /* Parameters that rows of one function differ in. */
    size_t size;
    size_t count;
    enum order order;
    _Bool blind; /* objects of other threads are freed without being read */

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

void sleep_ms(uint64_t milliseconds);

/* Of this program: tables of tests, each of which ends with a row without a name; then NULL. */
extern const struct test *const tables[];

#endif
