/*
 * After slub_bulk_bench of the deferred freelist's thread (linux-mm, 2026): bulk allocation from new slabs. On
 * touched memory it is compared with a loop that writes the same addresses into the same array; on untouched memory
 * each object is written once, and the comparison is with writes to new memory at the same distances.
 */
#define _GNU_SOURCE
#include "columns.h"
#include "cache/decay.h"
#include "process/decay.h"

#include <stdio.h>
#include <sys/mman.h>

static struct kmem_cache *cache;
static void **objects;
static size_t count_all, per_slab;

static __attribute__((noinline)) void write_addresses(char *start)
{
    void **into = objects;
    for (size_t left = count_all; left;) {
        size_t n = left < per_slab ? left : per_slab;
        char *at = start;
        for (size_t i = 0; i < n; i++, at += setup.size)
            *into++ = at;
        __asm__ volatile("" ::: "memory");
        left -= n;
        start += (size_t)SLICE_SIZE * cache->slab.slices;
    }
}

static __attribute__((noinline)) void write_objects(void)
{
    for (size_t i = 0; i < count_all; i++)
        *(volatile uint64_t *)objects[i] = i;
}

static double allocate(void)
{
    uint64_t start = now_ns();
    for (size_t i = 0; i < count_all; i += setup.batch)
        if (!kmem_cache_alloc_bulk(cache, GFP_KERNEL, setup.batch, objects + i))
            fail("no memory for %llu MiB; run with fewer --ops", (unsigned long long)setup.ops);
    if (setup.untouched)
        write_objects();
    return (double)(now_ns() - start) / (double)count_all;
}

static double only_addresses(char *start)
{
    uint64_t begun = now_ns();
    write_addresses(start);
    return (double)(now_ns() - begun) / (double)count_all;
}

/* The same addresses in memory of its own. */
static double only_touching(void)
{
    size_t slabs = count_all / per_slab + 1, bytes = slabs * SLICE_SIZE * cache->slab.slices;
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        fail("no memory beside; run with fewer --ops");
    madvise(memory, bytes, MADV_NOHUGEPAGE);
    uint64_t begun = now_ns();
    write_addresses(memory);
    write_objects();
    double ns = (double)(now_ns() - begun) / (double)count_all;
    munmap(memory, bytes);
    return ns;
}

static void give_back(void)
{
    kmem_cache_free_bulk(cache, count_all, objects);
    cache_drain(cache); /* nothing stays in sheaves: the next round begins with new slabs */
    if (setup.untouched)
        cache_trim_all();
}

void run_fresh(void)
{
    double ours = 1e18, beside = 1e18;
    cache = cache_under_test(setup.size);
    per_slab = cache->slab.objects;
    if (setup.batch == 1)
        setup.batch = cache->slab.objects;
    count_all = (setup.ops << 20) / setup.size / setup.batch * setup.batch;
    objects = scratch(count_all * sizeof(void *));
    for (unsigned warm = 0; warm < (setup.untouched ? 0 : 3); warm++) {
        allocate();
        write_objects();
        give_back();
    }
    for (unsigned r = 0; r < setup.rounds; r++) {
        double ns = allocate();
        ours = ns < ours ? ns : ours;
        char *start = (char *)((uintptr_t)objects[0] & ~(uintptr_t)(SLICE_SIZE - 1));
        give_back();
        ns = setup.untouched ? only_touching() : only_addresses(start);
        beside = ns < beside ? ns : beside;
    }
    printf(
        "{\"test\": \"fresh\", \"size\": %u, \"batch\": %u, \"random\": %d, \"untouched\": %d, \"ns_per_op\": %.3f, "
        "\"beside\": %.3f, \"ratio\": %.3f}\n",
        setup.size, setup.batch, setup.random, setup.untouched, ours, beside, ours / beside);
}
