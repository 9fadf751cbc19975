/*
 * Threads that allocate objects of random sizes. Most objects are short-lived, some are long-lived, and some are
 * freed by another thread. Modelled on "malloc() performance in a multithreaded Linux environment", USENIX 2000, and
 * on the mode of rpmalloc's benchmark in which other threads free objects.
 */
#include "../test.h"

#include <stdatomic.h>
#include <sys/mman.h>

enum { THREADS = 4, YOUNG = 256, OLD = 20000, MAILBOXES = 512 };

static struct owner {
    void *young[YOUNG]; /* a ring; an object is freed YOUNG allocations later */
    void **old;
    uint64_t seed;
    uint64_t ops;
} owners[THREADS];

/* A thread that stores an object here frees the previous one. */
static _Atomic(void *) *mailboxes;

static void *live(void *argument)
{
    struct owner *me = argument;
    for (uint64_t i = 0; i < me->ops; i++) {
        uint64_t r = random_next(&me->seed) >> 20;
        void *fresh = take(random_small_size(&me->seed)), *dead;
        if (r % 16 < 13) {
            dead = me->young[i % YOUNG];
            me->young[i % YOUNG] = fresh;
        } else if (r % 16 < 15) {
            dead = me->old[(r >> 4) % OLD];
            me->old[(r >> 4) % OLD] = fresh;
        } else {
            dead = atomic_exchange_explicit(&mailboxes[(r >> 4) % MAILBOXES], fresh, memory_order_acq_rel);
        }
        look(dead);
        give(dead);
    }
    return NULL;
}

static void prepare_lifetimes(const struct test *test)
{
    (void)test;
    mailboxes = scratch(MAILBOXES * sizeof(*mailboxes));
    for (unsigned i = 0; i < THREADS; i++)
        owners[i].old = scratch(OLD * sizeof(void *));
}

static uint64_t run_lifetimes(const struct test *test, uint64_t ops)
{
    uint64_t each = ops / test->count + 1;
    pthread_t threads[THREADS];
    for (unsigned i = 0; i < test->count; i++) {
        owners[i].seed = i + 1;
        owners[i].ops = each;
        threads[i] = start_thread(i, live, &owners[i]);
    }
    for (unsigned i = 0; i < test->count; i++)
        pthread_join(threads[i], NULL);
    return each * test->count;
}

static void finish_lifetimes(const struct test *test)
{
    (void)test;
    for (unsigned i = 0; i < THREADS; i++) {
        for (unsigned o = 0; o < YOUNG; o++)
            give(owners[i].young[o]);
        for (unsigned o = 0; o < OLD; o++)
            give(owners[i].old[o]);
        munmap(owners[i].old, OLD * sizeof(void *));
    }
    for (unsigned i = 0; i < MAILBOXES; i++)
        give(mailboxes[i]);
    munmap((void *)mailboxes, MAILBOXES * sizeof(*mailboxes));
}

#define LIFETIMES(n, many, text)                                                                                     \
    {                                                                                                                \
        .name = "lifetimes-" #n,                                                                                     \
        .what = text ": 13 of 16 objects short-lived, 2 long-lived, 1 freed by any thread; an op is one object",     \
        .ops = many, .repetitions = 1, .cold = 1, .count = n, .prepare = prepare_lifetimes, .run = run_lifetimes,    \
        .finish = finish_lifetimes,                                                                                  \
    }

static const struct test lifetime_tests[] = {
    LIFETIMES(1, 24000000, "one thread"),
    LIFETIMES(2, 24000000, "2 threads"),
    LIFETIMES(4, 24000000, "4 threads"),
    {0},
};
ADD_TESTS(lifetime_tests)
