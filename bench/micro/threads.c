/* Threads that pass objects to other threads, that share a table, that start and end. */
#define _GNU_SOURCE
#include "../test.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>

/*
 * Producer and consumer: each of 1 to 8 pairs has a ring of batches with one writer and one reader. A thread that has
 * to wait spins and then yields, because with futexes the test would measure wake-ups.
 *
 * The consumer reads each object before it frees it, so that the cache line of the object moves between the CPUs with
 * every allocator. In the blind variant it moves only if the allocator writes into free objects.
 */
enum { MOST_PAIRS = 8, RING_BATCHES = 64, BATCH_OBJECTS = 256, SPINS = 256 };

static struct ring {
    _Alignas(128) atomic_uint_fast64_t produced; /* batches; written only by the producer */
    _Alignas(128) atomic_uint_fast64_t consumed; /* batches; written only by the consumer; at most `produced` */
    _Alignas(128) void *batches[RING_BATCHES][BATCH_OBJECTS];
    uint64_t total;
    size_t size;
    _Bool blind; /* the consumer does not read the objects */
} * rings;       /* one for each pair */

static void wait_a_little(unsigned *spins)
{
    if (++*spins < SPINS) {
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#endif
    } else {
        sched_yield();
    }
}

static void *produce(void *argument)
{
    struct ring *ring = argument;
    for (uint64_t n = 0; n < ring->total; n++) {
        unsigned spins = 0;
        while (n - atomic_load_explicit(&ring->consumed, memory_order_acquire) == RING_BATCHES)
            wait_a_little(&spins);
        void **batch = ring->batches[n % RING_BATCHES];
        for (unsigned i = 0; i < BATCH_OBJECTS; i++)
            *(uint64_t *)(batch[i] = take(ring->size)) = n * BATCH_OBJECTS + i;
        atomic_store_explicit(&ring->produced, n + 1, memory_order_release);
    }
    return NULL;
}

static void *consume(void *argument)
{
    struct ring *ring = argument;
    for (uint64_t n = 0; n < ring->total; n++) {
        unsigned spins = 0;
        while (atomic_load_explicit(&ring->produced, memory_order_acquire) == n)
            wait_a_little(&spins);
        void **batch = ring->batches[n % RING_BATCHES];
        for (unsigned i = 0; i < BATCH_OBJECTS; i++) {
            if (!ring->blind && __builtin_expect(*(uint64_t *)batch[i] != n * BATCH_OBJECTS + i, 0))
                fail("a live object was overwritten; the allocator may have allocated it twice");
            give(batch[i]);
        }
        atomic_store_explicit(&ring->consumed, n + 1, memory_order_release);
    }
    return NULL;
}

static void prepare_rings(const struct test *test)
{
    rings = scratch(test->count * sizeof(*rings));
}

static void finish_rings(const struct test *test)
{
    munmap(rings, test->count * sizeof(*rings));
}

static uint64_t run_producer_consumer(const struct test *test, uint64_t ops)
{
    pthread_t producers[MOST_PAIRS], consumers[MOST_PAIRS];
    uint64_t each = (ops / test->count + BATCH_OBJECTS - 1) / BATCH_OBJECTS;
    for (unsigned i = 0; i < test->count; i++) {
        struct ring *ring = &rings[i];
        ring->total = each;
        ring->size = test->size;
        ring->blind = test->blind;
        atomic_store(&ring->produced, 0);
        atomic_store(&ring->consumed, 0);
        producers[i] = start_thread(2 * i, produce, ring);
        consumers[i] = start_thread(2 * i + 1, consume, ring);
    }
    for (unsigned i = 0; i < test->count; i++) {
        pthread_join(producers[i], NULL);
        pthread_join(consumers[i], NULL);
    }
    return each * BATCH_OBJECTS * test->count;
}

/*
 * A thread that only frees. It lives as long as the test; at a barrier it receives all objects that the other thread
 * has allocated. Only one of the two threads runs at a time, so that the test measures their paths without
 * contention.
 */
static struct {
    pthread_barrier_t turn;
    void **objects; /* `count` places */
    size_t count;
    uint64_t rounds;
} given;

static void *free_what_is_given(void *unused)
{
    for (uint64_t round = 0; round < given.rounds; round++) {
        pthread_barrier_wait(&given.turn);
        for (size_t i = 0; i < given.count; i++) {
            look(given.objects[i]);
            give(given.objects[i]);
        }
        pthread_barrier_wait(&given.turn);
    }
    return unused;
}

static void prepare_given(const struct test *test)
{
    given.count = test->count;
    given.objects = scratch(test->count * sizeof(*given.objects));
    pthread_barrier_init(&given.turn, NULL, 2);
}

static uint64_t run_consumer_only(const struct test *test, uint64_t ops)
{
    given.rounds = (ops + test->count - 1) / test->count;
    pthread_t consumer = start_thread(1, free_what_is_given, NULL);
    for (uint64_t round = 0; round < given.rounds; round++) {
        for (size_t i = 0; i < test->count; i++)
            given.objects[i] = take(test->size);
        pthread_barrier_wait(&given.turn);
        pthread_barrier_wait(&given.turn);
    }
    pthread_join(consumer, NULL);
    return given.rounds * test->count;
}

static void finish_given(const struct test *test)
{
    munmap(given.objects, test->count * sizeof(*given.objects));
}

/*
 * Tables: each thread chooses a random place, stores a new object there and frees the old one. With places of its
 * own, a thread frees its own objects; in a shared table it frees mostly those of other threads.
 */
enum { TABLE_THREADS = 8, PLACES = 1000 };

static _Atomic(void *) *table; /* TABLE_THREADS * PLACES */

struct worker {
    uint64_t seed;
    uint64_t ops;
    size_t first; /* index of the first of its own places */
};

static void *replace_own(void *argument)
{
    struct worker w = *(struct worker *)argument;
    for (uint64_t i = 0; i < w.ops; i++) {
        _Atomic(void *) *place = &table[w.first + (random_next(&w.seed) >> 32) % PLACES];
        give(atomic_load_explicit(place, memory_order_relaxed));
        atomic_store_explicit(place, take(random_small_size(&w.seed)), memory_order_relaxed);
    }
    return NULL;
}

static void *replace_shared(void *argument)
{
    struct worker w = *(struct worker *)argument;
    for (uint64_t i = 0; i < w.ops; i++) {
        _Atomic(void *) *place = &table[(random_next(&w.seed) >> 32) % (TABLE_THREADS * PLACES)];
        void *old = atomic_exchange_explicit(place, take(random_small_size(&w.seed)), memory_order_acq_rel);
        look(old);
        give(old);
    }
    return NULL;
}

static uint64_t run_table(size_t count, uint64_t ops, void *(*body)(void *))
{
    pthread_t threads[TABLE_THREADS];
    struct worker workers[TABLE_THREADS];
    uint64_t each = (ops + count - 1) / count;
    for (unsigned i = 0; i < count; i++) {
        workers[i] = (struct worker){.seed = 0x9E3779B97F4A7C15ULL * (i + 1), .ops = each, .first = i * PLACES};
        threads[i] = start_thread(i, body, &workers[i]);
    }
    for (unsigned i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    return each * count;
}

static uint64_t run_table_own(const struct test *test, uint64_t ops)
{
    return run_table(test->count, ops, replace_own);
}

static uint64_t run_table_shared(const struct test *test, uint64_t ops)
{
    return run_table(test->count, ops, replace_shared);
}

static void prepare_table(const struct test *test)
{
    (void)test;
    table = scratch(TABLE_THREADS * PLACES * sizeof(*table));
}

static void finish_table(const struct test *test)
{
    (void)test;
    for (size_t i = 0; i < TABLE_THREADS * PLACES; i++)
        give(table[i]);
    munmap((void *)table, TABLE_THREADS * PLACES * sizeof(*table));
}

static void *allocate_once(void *argument)
{
    give(take(*(size_t *)argument));
    return NULL;
}

static uint64_t run_thread_starts(const struct test *test, uint64_t ops)
{
    size_t size = test->size;
    for (uint64_t i = 0; i < ops; i++)
        pthread_join(start_thread(0, allocate_once, &size), NULL);
    return ops;
}

#define PAIRS(label, pairs, text)                                                                                    \
    {                                                                                                                \
        .name = "producer-consumer" label, .what = text, .ops = 2000000, .repetitions = 5, .size = 64,               \
        .count = pairs, .prepare = prepare_rings, .run = run_producer_consumer, .finish = finish_rings,              \
    }
#define TABLE(n, text)                                                                                               \
    {                                                                                                                \
        .name = "table-" #n,                                                                                         \
        .what = text " objects of 16 to 4096 bytes in 1000 places each; an op is one malloc and one free",           \
        .ops = 8000000, .repetitions = 5, .count = n, .prepare = prepare_table, .run = run_table_own,                \
        .finish = finish_table,                                                                                      \
    }

static const struct test thread_tests[] = {
    PAIRS("", 1, "one thread allocates objects of 64 bytes, another reads and frees them; an op is one object"),
    PAIRS("-2", 2, "like producer-consumer, with 2 pairs of threads"),
    PAIRS("-4", 4, "like producer-consumer, with 4 pairs of threads"),
    PAIRS("-8", 8, "like producer-consumer, with 8 pairs of threads"),
    {.name = "producer-consumer-blind",
     .what = "like producer-consumer, but objects are freed without being read",
     .ops = 2000000,
     .repetitions = 5,
     .size = 64,
     .count = 1,
     .blind = 1,
     .prepare = prepare_rings,
     .run = run_producer_consumer,
     .finish = finish_rings},
    {.name = "consumer-only",
     .what = "a thread that never allocates frees 10000 objects of 64 bytes at a time; an op is one object",
     .ops = 2000000,
     .repetitions = 5,
     .size = 64,
     .count = 10000,
     .prepare = prepare_given,
     .run = run_consumer_only,
     .finish = finish_given},
    TABLE(1, "one thread replaces"),
    TABLE(2, "2 threads replace"),
    TABLE(4, "4 threads replace"),
    TABLE(8, "8 threads replace"),
    {.name = "table-8-shared",
     .what = "8 threads replace objects in a shared table of 8000 places; an op is one malloc and one free",
     .ops = 8000000,
     .repetitions = 5,
     .count = TABLE_THREADS,
     .prepare = prepare_table,
     .run = run_table_shared,
     .finish = finish_table},
    {.name = "thread-start",
     .what = "a thread starts, allocates and frees 64 bytes once, and ends; an op is one thread",
     .ops = 4000,
     .repetitions = 7,
     .size = 64,
     .run = run_thread_starts},
    {0},
};
ADD_TESTS(thread_tests)
