/*
 * False sharing: small objects of several threads on one cache line slow the threads down. Active: the allocator
 * places objects of several threads on one line. Passive: the program passes objects on one line to several threads,
 * and the allocator should not reuse them for the threads that free them. Modelled on "Hoard: a scalable memory
 * allocator for multithreaded applications", ASPLOS 2000.
 */
#include "../test.h"

enum { THREADS = 4, SIZE = 8, WRITES = 100 };

struct writer {
    void *first; /* an object allocated by the main thread, or NULL */
    uint64_t ops;
};

static void *write_much(void *argument)
{
    struct writer *w = argument;
    give(w->first);
    for (uint64_t i = 0; i < w->ops; i++) {
        volatile char *object = take(SIZE);
        for (unsigned n = 0; n < WRITES; n++)
            object[n % SIZE]++;
        give((void *)(uintptr_t)object);
    }
    return NULL;
}

static uint64_t run_sharing(const struct test *test, uint64_t ops)
{
    pthread_t threads[THREADS];
    struct writer writers[THREADS];
    uint64_t each = ops / THREADS + 1;
    for (unsigned i = 0; i < THREADS; i++)
        writers[i] = (struct writer){.first = test->count != 0 ? take(SIZE) : NULL, .ops = each};
    for (unsigned i = 0; i < THREADS; i++)
        threads[i] = start_thread(i, write_much, &writers[i]);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    return each * THREADS;
}

#define SHARING(label, passed, text)                                                                                 \
    {                                                                                                                \
        .name = "false-sharing-" label,                                                                              \
        .what = "4 threads write 100 times to each object of 8 bytes" text "; an op is one object", .ops = 8000000,  \
        .repetitions = 1, .cold = 1, .count = passed, .run = run_sharing,                                            \
    }

static const struct test sharing_tests[] = {
    SHARING("active", 0, " of their own"),
    SHARING("passive", 1, ", after freeing one on a shared line"),
    {0},
};
ADD_TESTS(sharing_tests)
