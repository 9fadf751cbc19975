/* Threads that pass objects on, that compete, that come and go. */
#define _GNU_SOURCE
#include "micro.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>

/* The n-th CPU that this process may use, counted around. */
static void choose_cpu(pthread_attr_t *attributes, unsigned n)
{
    cpu_set_t allowed, one;
    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0)
        fail("--spread: the CPUs of this process cannot be read; run without it");
    unsigned left = n % (unsigned)CPU_COUNT(&allowed), cpu = 0;
    while (!CPU_ISSET(cpu, &allowed) || left-- > 0)
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    pthread_attr_setaffinity_np(attributes, sizeof(one), &one);
}

static pthread_t start_thread(unsigned n, void *(*body)(void *), void *argument)
{
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    if (spread)
        choose_cpu(&attributes, n);
    if (pthread_create(&thread, &attributes, body, argument) != 0)
        fail("a thread could not be started; raise the limit of processes (ulimit -u)");
    pthread_attr_destroy(&attributes);
    return thread;
}

/*
 * Producer and consumer: one ring of batches, one writer and one reader. Who must wait spins a little, then yields:
 * with futexes the figure would be that of wake-ups.
 *
 * The consumer checks each object's number before it frees it, so the object's cache line crosses over whatever the
 * allocator does. In the blind variant only an allocator that writes into free objects makes it cross.
 */
enum { RING_BATCHES = 64, BATCH_OBJECTS = 256, SPINS = 256 };

static struct {
    _Alignas(128) atomic_uint_fast64_t produced; /* batches; written by the producer alone */
    _Alignas(128) atomic_uint_fast64_t consumed; /* batches; written by the consumer alone; never above produced */
    _Alignas(128) void *batches[RING_BATCHES][BATCH_OBJECTS];
    uint64_t total;
    size_t size;
    _Bool blind; /* the consumer frees without looking */
} ring;

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

static void *produce(void *unused)
{
    for (uint64_t n = 0; n < ring.total; n++) {
        unsigned spins = 0;
        while (n - atomic_load_explicit(&ring.consumed, memory_order_acquire) == RING_BATCHES)
            wait_a_little(&spins);
        void **batch = ring.batches[n % RING_BATCHES];
        for (unsigned i = 0; i < BATCH_OBJECTS; i++)
            *(uint64_t *)(batch[i] = take(ring.size)) = n * BATCH_OBJECTS + i;
        atomic_store_explicit(&ring.produced, n + 1, memory_order_release);
    }
    return unused;
}

static void *consume(void *unused)
{
    for (uint64_t n = 0; n < ring.total; n++) {
        unsigned spins = 0;
        while (atomic_load_explicit(&ring.produced, memory_order_acquire) == n)
            wait_a_little(&spins);
        void **batch = ring.batches[n % RING_BATCHES];
        for (unsigned i = 0; i < BATCH_OBJECTS; i++) {
            if (!ring.blind && __builtin_expect(*(uint64_t *)batch[i] != n * BATCH_OBJECTS + i, 0))
                fail("an object on its way was overwritten; the allocator gave it away twice");
            give(batch[i]);
        }
        atomic_store_explicit(&ring.consumed, n + 1, memory_order_release);
    }
    return unused;
}

static uint64_t run_producer_consumer(const struct test *test, uint64_t ops)
{
    ring.total = (ops + BATCH_OBJECTS - 1) / BATCH_OBJECTS;
    ring.size = test->size;
    ring.blind = test->blind;
    atomic_store(&ring.produced, 0);
    atomic_store(&ring.consumed, 0);
    pthread_t producer = start_thread(0, produce, NULL);
    pthread_t consumer = start_thread(1, consume, NULL);
    pthread_join(producer, NULL);
    pthread_join(consumer, NULL);
    return ring.total * BATCH_OBJECTS;
}

/*
 * Tables: each thread picks a place at random, puts a new object there and frees the old one. With places of its own
 * a thread frees what it allocated; in a shared table mostly what another did.
 */
enum { TABLE_THREADS = 8, PLACES = 1000 };

static _Atomic(void *) *table; /* TABLE_THREADS * PLACES */

struct worker {
    uint64_t seed;
    uint64_t ops;
    size_t first; /* its own places start here */
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

static uint64_t run_table(uint64_t ops, void *(*body)(void *))
{
    pthread_t threads[TABLE_THREADS];
    struct worker workers[TABLE_THREADS];
    uint64_t each = (ops + TABLE_THREADS - 1) / TABLE_THREADS;
    for (unsigned i = 0; i < TABLE_THREADS; i++) {
        workers[i] = (struct worker){.seed = 0x9E3779B97F4A7C15ULL * (i + 1), .ops = each, .first = i * PLACES};
        threads[i] = start_thread(i, body, &workers[i]);
    }
    for (unsigned i = 0; i < TABLE_THREADS; i++)
        pthread_join(threads[i], NULL);
    return each * TABLE_THREADS;
}

static uint64_t run_table_own(const struct test *test, uint64_t ops)
{
    (void)test;
    return run_table(ops, replace_own);
}

static uint64_t run_table_shared(const struct test *test, uint64_t ops)
{
    (void)test;
    return run_table(ops, replace_shared);
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

const struct test thread_tests[] = {
    {
        .name = "producer-consumer",
        .what = "64 bytes allocated by one thread, read and freed by another; an op is one object",
        .ops = 2000000,
        .repetitions = 5,
        .size = 64,
        .run = run_producer_consumer,
    },
    {
        .name = "producer-consumer-blind",
        .what = "the same, but freed without being read",
        .ops = 2000000,
        .repetitions = 5,
        .size = 64,
        .blind = 1,
        .run = run_producer_consumer,
    },
    {
        .name = "table-8",
        .what = "8 threads replace objects of 16 to 4096 bytes in 1000 places each; an op is one malloc and one free",
        .ops = 8000000,
        .repetitions = 5,
        .prepare = prepare_table,
        .run = run_table_own,
        .finish = finish_table,
    },
    {
        .name = "table-8-shared",
        .what =
            "8 threads replace in one table of 8000 places, reading what they free; an op is one malloc and one free",
        .ops = 8000000,
        .repetitions = 5,
        .prepare = prepare_table,
        .run = run_table_shared,
        .finish = finish_table,
    },
    {
        .name = "thread-start",
        .what = "a thread that starts, allocates 64 bytes once, frees them and ends; an op is one thread",
        .ops = 4000,
        .repetitions = 7,
        .size = 64,
        .run = run_thread_starts,
    },
    {0},
};
