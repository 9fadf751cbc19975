/*
 * Batches of objects of rising and falling sizes. Half of a batch is freed in the order of allocation, half in
 * reverse order; some of its objects live for several batches. In the second test, each thread frees the batches of
 * the other. Modelled on the patterns of sh6bench and sh8bench, which came with SmartHeap.
 */
#include "../test.h"

#include <sys/mman.h>

enum { THREADS = 2, BATCH = 2000, KEPT = 400, LEAST = 16, MOST = 1000, ROUNDS_KEPT = 8 };

static struct worker {
    void **batches[2]; /* BATCH places each, for this round and the previous one */
    void **kept;       /* KEPT places for each of the last ROUNDS_KEPT rounds */
    uint64_t rounds;
    unsigned number;
} workers[THREADS];

static pthread_barrier_t round_over;
static _Bool swapping;

/* The sizes rise and fall with i; small ones are more frequent. */
static size_t size_of(unsigned i, uint64_t round)
{
    unsigned step = (i * 7 + (unsigned)round * 13) % 64;
    unsigned height = step < 32 ? step : 63 - step;
    return LEAST + (MOST - LEAST) * height * height / (31 * 31);
}

static void fill(struct worker *w, uint64_t round)
{
    void **batch = w->batches[round % 2];
    void **kept = w->kept + (round % ROUNDS_KEPT) * KEPT;
    for (unsigned i = 0; i < BATCH; i++)
        batch[i] = take(size_of(i, round));
    for (unsigned i = 0; i < KEPT; i++) {
        give(kept[i]);
        kept[i] = batch[i * (BATCH / KEPT)];
        batch[i * (BATCH / KEPT)] = NULL;
    }
}

/* Frees the first half oldest first, the second half newest first. */
static void empty(void **batch)
{
    for (unsigned i = 0; i < BATCH / 2; i++) {
        look(batch[i]);
        give(batch[i]);
    }
    for (unsigned i = BATCH; i-- > BATCH / 2;) {
        look(batch[i]);
        give(batch[i]);
    }
}

static void *work(void *argument)
{
    struct worker *w = argument;
    for (uint64_t round = 0; round < w->rounds; round++) {
        fill(w, round);
        if (swapping)
            pthread_barrier_wait(&round_over);
        empty(workers[(w->number + swapping) % THREADS].batches[round % 2]);
    }
    return NULL;
}

static void prepare_batches(const struct test *test)
{
    (void)test;
    for (unsigned i = 0; i < THREADS; i++) {
        for (unsigned b = 0; b < 2; b++)
            workers[i].batches[b] = scratch(BATCH * sizeof(void *));
        workers[i].kept = scratch((size_t)ROUNDS_KEPT * KEPT * sizeof(void *));
    }
}

static uint64_t run_batches(const struct test *test, uint64_t ops)
{
    pthread_t threads[THREADS];
    uint64_t rounds = ops / ((uint64_t)BATCH * THREADS) + 1;
    swapping = test->count != 0;
    pthread_barrier_init(&round_over, NULL, THREADS);
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i].rounds = rounds;
        workers[i].number = i;
        threads[i] = start_thread(i, work, &workers[i]);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    return rounds * BATCH * THREADS;
}

static void finish_batches(const struct test *test)
{
    (void)test;
    for (unsigned i = 0; i < THREADS; i++) {
        for (unsigned k = 0; k < ROUNDS_KEPT * KEPT; k++)
            give(workers[i].kept[k]);
        munmap(workers[i].batches[0], BATCH * sizeof(void *));
        munmap(workers[i].batches[1], BATCH * sizeof(void *));
        munmap(workers[i].kept, (size_t)ROUNDS_KEPT * KEPT * sizeof(void *));
    }
}

#define BATCHES(label, swap, text)                                                                                   \
    {                                                                                                                \
        .name = "batches-" label,                                                                                    \
        .what = "2 threads allocate batches of 16 to 1000 bytes" text "; an op is one object", .ops = 16000000,      \
        .repetitions = 1, .cold = 1, .count = swap, .prepare = prepare_batches, .run = run_batches,                  \
        .finish = finish_batches,                                                                                    \
    }

static const struct test batch_tests[] = {
    BATCHES("own", 0, " and free them, some after 8 rounds"),
    BATCHES("swapped", 1, ", and free each other's"),
    {0},
};
ADD_TESTS(batch_tests)
