/*
 * Threads that only allocate and threads that only free, in unequal numbers, with a bounded stack of batches between
 * them. Modelled on the test with separate producers and consumers in "malloc() performance in a multithreaded Linux
 * environment", USENIX 2000.
 */
#include "../test.h"

#include <sched.h>

enum { MOST_THREADS = 8, BATCH = 1000, QUEUE = 64 };

struct batch {
    struct batch *next;
    void *objects[BATCH];
};

/* Batches are allocated by producers and freed by consumers, like the objects in them. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t filled, emptied;
    struct batch *head;
    unsigned length;
    uint64_t to_make; /* batches that no producer has claimed yet */
    uint64_t to_free; /* batches that no consumer has claimed yet */
} queue = {
    .lock = PTHREAD_MUTEX_INITIALIZER, .filled = PTHREAD_COND_INITIALIZER, .emptied = PTHREAD_COND_INITIALIZER};

static void put(struct batch *batch)
{
    pthread_mutex_lock(&queue.lock);
    while (queue.length == QUEUE)
        pthread_cond_wait(&queue.emptied, &queue.lock);
    batch->next = queue.head;
    queue.head = batch;
    queue.length++;
    pthread_cond_signal(&queue.filled);
    pthread_mutex_unlock(&queue.lock);
}

/* Waits for a batch; returns NULL if all batches are claimed. */
static struct batch *get(void)
{
    pthread_mutex_lock(&queue.lock);
    if (queue.to_free == 0) {
        pthread_mutex_unlock(&queue.lock);
        return NULL;
    }
    queue.to_free--;
    while (queue.head == NULL)
        pthread_cond_wait(&queue.filled, &queue.lock);
    struct batch *batch = queue.head;
    queue.head = batch->next;
    queue.length--;
    pthread_cond_signal(&queue.emptied);
    pthread_mutex_unlock(&queue.lock);
    return batch;
}

/* Claims a batch for a producer; returns false if all are claimed. */
static _Bool claim(void)
{
    pthread_mutex_lock(&queue.lock);
    _Bool more = queue.to_make > 0;
    queue.to_make -= more;
    pthread_mutex_unlock(&queue.lock);
    return more;
}

static void *produce(void *argument)
{
    uint64_t seed = (uintptr_t)argument + 1;
    while (claim()) {
        struct batch *batch = take(sizeof(*batch));
        for (unsigned i = 0; i < BATCH; i++)
            batch->objects[i] = take(8 + (random_next(&seed) >> 32) % 248);
        put(batch);
    }
    return NULL;
}

static void *consume(void *unused)
{
    for (struct batch *batch; (batch = get()) != NULL;) {
        for (unsigned i = 0; i < BATCH; i++) {
            look(batch->objects[i]);
            give(batch->objects[i]);
        }
        give(batch);
    }
    return unused;
}

/* `count` of the test is the number of producers, `size` that of consumers. */
static uint64_t run_asymmetric(const struct test *test, uint64_t ops)
{
    pthread_t threads[MOST_THREADS];
    uint64_t batches = ops / BATCH + 1;
    unsigned started = 0;
    queue.to_make = queue.to_free = batches;
    for (; started < test->count; started++)
        threads[started] = start_thread(started, produce, (void *)(uintptr_t)started);
    for (; started < test->count + test->size; started++)
        threads[started] = start_thread(started, consume, NULL);
    while (started-- > 0)
        pthread_join(threads[started], NULL);
    return batches * BATCH;
}

#define ASYMMETRIC(producers, consumers, many)                                                                       \
    {                                                                                                                \
        .name = "asymmetric-" #producers "-" #consumers,                                                             \
        .what = #producers " threads allocate 8 to 255 bytes, " #consumers " free them; an op is one object",        \
        .ops = many, .repetitions = 1, .cold = 1, .count = producers, .size = consumers, .run = run_asymmetric,      \
    }

static const struct test asymmetric_tests[] = {
    ASYMMETRIC(1, 3, 8000000),
    ASYMMETRIC(3, 1, 8000000),
    ASYMMETRIC(4, 4, 8000000),
    {0},
};
ADD_TESTS(asymmetric_tests)
