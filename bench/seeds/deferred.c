/*
 * bench-deferred: the measurements of the kernel's kfree_rcu() and prefilled sheaves, in user space.
 *
 * mmap2 calls the slab allocator as the kernel does under will-it-scale's mmap2: it prefills a sheaf of nodes for the
 * worst case, takes two nodes and one object, and returns the rest; it frees the object at once, and the nodes after
 * a grace period. Each of N threads has a read-side section in every round.
 *
 * kfree_rcu_1 and kfree_rcu_2 follow the kernel's test of vmalloc: malloc, write, free after a grace period, by
 * pointer alone or with an rcu_head in the object. free does the same with free(), for comparison.
 *
 * With --drop-empty an empty main sheaf does not become the spare but goes to the common pool, as in the kernel
 * before it kept such sheaves.
 *
 * Prints one line of JSON: the time, and from the allocator's counters the operations beyond the slot. The program
 * contains the allocator, to choose capacities and to read the counters.
 */
#define _GNU_SOURCE
#include <urcu-bp.h>

#include "cache/deferred/rcu.h"
#include "drop_empty.h"
#include "sheaf/malloc.h"
#include "sheaf/rcu.h"
#include "process/decay.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { WORST = 8, NODE = 256, OBJECT = 184, MOST_THREADS = 512 }; /* maple_node, vm_area_struct */

static struct {
    const char *test;
    unsigned threads, capacity;
    uint64_t ops;
    int deferred;
} run = {.threads = 1, .ops = 1000000, .deferred = 1};

static struct kmem_cache *nodes, *objects;
static _Atomic uint64_t empties; /* sheaves fetched from the common pool */

/* The linker puts this function before the allocator's. */
struct sheaf *__real_empty_sheaf_alloc(unsigned capacity);
struct sheaf *__wrap_empty_sheaf_alloc(unsigned capacity);
struct sheaf *__wrap_empty_sheaf_alloc(unsigned capacity)
{
    atomic_fetch_add_explicit(&empties, 1, memory_order_relaxed);
    return __real_empty_sheaf_alloc(capacity);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void *need(void *p)
{
    if (!p) {
        fprintf(stderr, "bench-deferred: no memory; run with fewer --threads\n");
        exit(1);
    }
    return p;
}

static void give_node(void *node)
{
    if (run.deferred)
        kmem_cache_free_rcu(nodes, node);
    else
        kmem_cache_free(nodes, node);
}

static void *mmap2(void *unused)
{
    for (uint64_t i = 0; i < run.ops; i++) {
        struct slab_sheaf *sheaf = need(kmem_cache_prefill_sheaf(nodes, GFP_KERNEL, WORST));
        uint64_t *first = kmem_cache_alloc_from_sheaf(nodes, 0, sheaf);
        uint64_t *second = kmem_cache_alloc_from_sheaf(nodes, 0, sheaf);
        uint64_t *object = need(kmem_cache_alloc(objects, 0));
        *first = *second = *object = i;
        kmem_cache_return_sheaf(nodes, 0, sheaf);
        rcu_read_lock();
        __asm__ volatile("" ::: "memory");
        rcu_read_unlock();
        kmem_cache_free(objects, object);
        give_node(first);
        give_node(second);
    }
    return unused;
}

struct small {
    uint64_t word;
    char more[40];
    struct rcu_head rcu;
};

static void *kfree_rcu_1(void *unused)
{
    for (uint64_t i = 0; i < run.ops; i++) {
        struct small *p = need(sheaf_malloc(sizeof(*p)));
        p->word = i;
        kfree_rcu(p);
    }
    return unused;
}

static void *kfree_rcu_2(void *unused)
{
    for (uint64_t i = 0; i < run.ops; i++) {
        struct small *p = need(sheaf_malloc(sizeof(*p)));
        p->word = i;
        kfree_rcu(p, rcu);
    }
    return unused;
}

static void *free_at_once(void *unused)
{
    for (uint64_t i = 0; i < run.ops; i++) {
        struct small *p = need(sheaf_malloc(sizeof(*p)));
        *(volatile uint64_t *)&p->word = i;
        sheaf_free(p);
    }
    return unused;
}

static const struct {
    const char *name;
    void *(*loop)(void *);
} tests[] = {{"mmap2", mmap2}, {"kfree_rcu_1", kfree_rcu_1}, {"kfree_rcu_2", kfree_rcu_2}, {"free", free_at_once}};

static uint64_t sum(enum slot_counter which)
{
    uint64_t all = 0;
    for (unsigned i = CACHE_FIRST; i < cache_top; i++)
        if (cache_in_use(cache_at(i)))
            all += counter_sum(i, which);
    return all;
}

static void report(uint64_t ns)
{
    struct sheaf_rcu_stats stats;
    uint64_t ops = run.ops * run.threads;
    sheaf_rcu_stats(&stats);
    double each = 1.0 / (double)ops;
    uint64_t gets = sum(COUNT_barn_get) + sum(COUNT_barn_get_fail),
             puts = sum(COUNT_barn_put) + sum(COUNT_barn_put_fail);
    printf(
        "{\"test\": \"%s\", \"threads\": %u, \"capacity\": %u, \"deferred\": %d, \"ops\": %lu, \"ns_per_op\": %.1f, "
        "\"barn_gets_per_op\": %.5f, \"barn_puts_per_op\": %.5f, \"rcu_sheaves_per_op\": %.5f, "
        "\"slab_objects_per_op\": %.5f, \"prefills_fast\": %.4f, \"recycled\": %.4f, \"grace_periods\": %lu, "
        "\"waits\": %lu, \"keeps_empty\": %d, \"empties_per_op\": %.5f}\n",
        run.test, run.threads, run.capacity, run.deferred, (unsigned long)ops, (double)ns * run.threads * each,
        (double)gets * each, (double)puts * each, (double)sum(COUNT_rcu_sheaf) * each,
        (double)(sum(COUNT_sheaf_refill) + sum(COUNT_sheaf_flush)) * each,
        (double)sum(COUNT_sheaf_prefill_fast) * each,
        (double)sum(COUNT_rcu_recycle) / (double)(sum(COUNT_rcu_sheaf) + !sum(COUNT_rcu_sheaf)),
        (unsigned long)stats.grace_periods, (unsigned long)stats.waits, !drop_empty,
        (double)atomic_load(&empties) * each);
}

static void usage(void)
{
    fprintf(
        stderr,
        "Usage: bench-deferred mmap2|kfree_rcu_1|kfree_rcu_2|free [--threads N] [--capacity N] [--ops N] "
        "[--at-once] [--drop-empty]\n  --ops of each thread; --at-once frees mmap2's nodes without a grace period\n");
    exit(2);
}

static void *(*read_arguments(int argc, char **argv))(void *)
{
    void *(*loop)(void *) = NULL;
    for (unsigned i = 0; argc > 1 && i < sizeof(tests) / sizeof(tests[0]); i++)
        if (!strcmp(argv[1], tests[i].name))
            loop = tests[i].loop;
    for (int i = 2; i < argc; i++) {
        unsigned long n = i + 1 < argc ? strtoul(argv[i + 1], NULL, 10) : 0;
        if (!strcmp(argv[i], "--at-once"))
            run.deferred = 0;
        else if (!strcmp(argv[i], "--drop-empty"))
            drop_empty = true;
        else if (!strcmp(argv[i], "--threads") && n && n <= MOST_THREADS && ++i)
            run.threads = (unsigned)n;
        else if (!strcmp(argv[i], "--capacity") && n && n <= sheaf_capacity_of(SHEAF_ORDER_MAX) && ++i)
            run.capacity = (unsigned)n;
        else if (!strcmp(argv[i], "--ops") && n && ++i)
            run.ops = n;
        else
            usage();
    }
    if (!loop)
        usage();
    run.test = argv[1];
    return loop;
}

int main(int argc, char **argv)
{
    pthread_t threads[MOST_THREADS];
    void *(*loop)(void *) = read_arguments(argc, argv);
    struct kmem_cache_args args = {.sheaf_capacity = run.capacity};
    nodes = need(kmem_cache_create("node", NODE, &args, SLAB_HWCACHE_ALIGN));
    objects = need(kmem_cache_create("object", OBJECT, &args, 0));
    uint64_t begun = now_ns();
    for (unsigned i = 0; i < run.threads; i++)
        if (pthread_create(&threads[i], NULL, loop, NULL)) {
            fprintf(stderr, "bench-deferred: thread %u cannot be started; run with fewer --threads\n", i);
            return 1;
        }
    for (unsigned i = 0; i < run.threads; i++)
        pthread_join(threads[i], NULL);
    uint64_t ns = now_ns() - begun;
    kvfree_rcu_barrier();
    cache_fold_all();
    report(ns);
    return 0;
}
