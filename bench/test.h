/*
 * A test is a row of a table, with functions for preparation, the timed part and clean-up. To add a test, add a row
 * to the table of its file. The tables of a program are in the order of its files in meson.build.
 */
#ifndef BENCH_TEST_H
#define BENCH_TEST_H

#include "measure.h"

#include <pthread.h>

enum order { FIFO, LIFO, SHUFFLED };

/* The time of a test: wall time; the CPU time of all threads without that of note_memory(); or none, if the test
 * measures only memory. */
enum timing { WALL_TIME, CPU_TIME, NO_TIME };

struct test {
    const char *name;
    const char *what;     /* description for --list; defines the op */
    uint64_t ops;         /* in one repetition; --ops can lower it */
    unsigned repetitions; /* timed; --repetitions replaces it */
    _Bool cold;           /* without warm-up, because the test measures first use of memory */
    enum timing timing;

    /* Parameters of run(). */
    size_t size;
    size_t count;
    enum order order;
    _Bool blind;       /* free objects of other threads without reading them */
    const void *shape; /* further parameters, with a type of the test's file */

    void (*prepare)(const struct test *);               /* not timed, may be NULL */
    uint64_t (*run)(const struct test *, uint64_t ops); /* runs about `ops`, at least one; returns their number */
    void (*linger)(const struct test *);                /* not timed, but part of the memory peak; may be NULL */
    void (*finish)(const struct test *);                /* neither timed nor part of the peak; may be NULL */
};

/*
 * --spread was given: the n-th thread is pinned to the n-th CPU that the process may use, modulo their number.
 * Otherwise the scheduler chooses CPUs.
 */
extern _Bool spread;

/* --ops was given. This is then a quick trial instead of a measurement, and waits are shortened. */
extern _Bool brief;

/* Starts the n-th thread of a test. Exits if that fails. */
pthread_t start_thread(unsigned n, void *(*body)(void *), void *argument);

/*
 * Adds the current resident memory to the result. `moment` is the name of a column in the tables, or NULL for a
 * point that only plots show. Calls in repetitions after the first, and beyond the first 512, are ignored.
 */
void note_memory(const char *moment);

/* Live bytes, which note_memory() adds to the result as a lower bound of resident memory. Only tests that do not
 * measure wall time maintain it. */
extern uint64_t bytes_live;

/* Sleeps for the whole time, despite signals. */
void sleep_ms(uint64_t milliseconds);

/* Adds a table to the program. It ends with a row without a name. */
void add_tests(const struct test *tests);
#define ADD_TESTS(tests)                                                                                             \
    __attribute__((constructor)) static void add_##tests(void)                                                       \
    {                                                                                                                \
        add_tests(tests);                                                                                            \
    }

#endif
