/*
 * After the ublk report (linux-block, 2026): one CPU allocates objects and another frees them. Pairs of threads share
 * a ring. With --plain the objects are not allocated but return through a second ring, which shows the cost of
 * scheduling and of the ring.
 */
#define _GNU_SOURCE
#include "columns.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>

enum { RING = 512 };

struct ring {
    _Alignas(128) _Atomic uint64_t head;
    _Alignas(128) _Atomic uint64_t tail;
    _Alignas(128) void *objects[RING];
};

struct pair {
    struct ring there, back;
    uint64_t ops;
};

static struct kmem_cache *cache;

static void put(struct ring *ring, void *object)
{
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    while (head - atomic_load_explicit(&ring->tail, memory_order_acquire) == RING)
        sched_yield();
    ring->objects[head % RING] = object;
    atomic_store_explicit(&ring->head, head + 1, memory_order_release);
}

static void *get(struct ring *ring)
{
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    while (atomic_load_explicit(&ring->head, memory_order_acquire) == tail)
        sched_yield();
    void *object = ring->objects[tail % RING];
    atomic_store_explicit(&ring->tail, tail + 1, memory_order_release);
    return object;
}

static void *produce(void *argument)
{
    struct pair *pair = argument;
    for (uint64_t i = 0; i < pair->ops; i++) {
        void *object = setup.plain ? get(&pair->back) : kmem_cache_alloc(cache, GFP_KERNEL);
        if (!object)
            fail("no memory; run with fewer --pairs");
        *(volatile uint64_t *)object = i;
        put(&pair->there, object);
    }
    return NULL;
}

static void *consume(void *argument)
{
    struct pair *pair = argument;
    for (uint64_t i = 0; i < pair->ops; i++) {
        void *object = get(&pair->there);
        if (*(volatile uint64_t *)object != i)
            fail("an object in use was overwritten; the allocator gave it away twice");
        if (setup.plain)
            put(&pair->back, object);
        else
            kmem_cache_free(cache, object);
    }
    return NULL;
}

static void prepare(struct pair *pair)
{
    pair->ops = setup.ops / setup.pairs + 1;
    for (unsigned i = 0; setup.plain && i < RING / 2; i++)
        put(&pair->back, kmem_cache_alloc(cache, GFP_KERNEL));
}

static double one_round(struct pair *pairs)
{
    pthread_t threads[512];
    uint64_t start = now_ns();
    for (unsigned i = 0; i < setup.pairs; i++)
        if (pthread_create(&threads[2 * i], NULL, produce, &pairs[i]) ||
            pthread_create(&threads[2 * i + 1], NULL, consume, &pairs[i]))
            fail("a thread could not be started; run with fewer --pairs");
    for (unsigned i = 0; i < 2 * setup.pairs; i++)
        pthread_join(threads[i], NULL);
    return (double)(now_ns() - start) / (double)(pairs[0].ops * setup.pairs);
}

void run_cross(void)
{
    struct pair *pairs = scratch(setup.pairs * sizeof(*pairs));
    double least = 1e18;
    cache = cache_under_test(setup.size);
    for (unsigned i = 0; i < setup.pairs; i++)
        prepare(&pairs[i]);
    for (unsigned r = 0; r < setup.rounds; r++) {
        double ns = one_round(pairs);
        least = ns < least ? ns : least;
    }
    printf("{\"test\": \"cross\", \"pairs\": %u, \"plain\": %d, \"capacity\": %d, \"ns_per_op\": %.3f, "
           "\"fast_share\": %.5f, \"barn_per_million\": %.0f, \"slab_objects_per_million\": %.0f}\n",
           setup.pairs, setup.plain, setup.fixed ? (int)setup.capacity : -1, least, fast_share(cache),
           (double)(counter_sum(cache->number, COUNT_barn_get) + counter_sum(cache->number, COUNT_barn_put)) * 1e6 /
               (double)(setup.ops * setup.rounds),
           (double)(counter_sum(cache->number, COUNT_sheaf_refill) + counter_sum(cache->number, COUNT_sheaf_flush)) *
               1e6 / (double)(setup.ops * setup.rounds));
}
