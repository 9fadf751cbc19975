/*
 * A test is one row: how to prepare it, the part that is timed, how to clean up. To add one, write a row into the
 * table of the file that it belongs to; a new file adds its table to the list in main.c.
 */
#ifndef BENCH_MICRO_H
#define BENCH_MICRO_H

#include "../measure.h"

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
    void (*finish)(const struct test *);                /* not timed, may be NULL */
};

/*
 * --spread: the n-th thread started gets the n-th of the CPUs that the process may use, and so on around; without it
 * the scheduler decides.
 */
extern _Bool spread;

/* Each ends with a row without a name. */
extern const struct test pairs_tests[];
extern const struct test batch_tests[];
extern const struct test thread_tests[];
extern const struct test memory_tests[];
extern const struct test process_tests[];

#endif
