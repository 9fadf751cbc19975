/*
 * bench-slots: a simulation of many CPUs. One thread plays 8 to 384 slots in a random order, and counts what a
 * machine of so many CPUs would share: operations on barns, on the pool of empty sheaves, and on slabs under the
 * cache's lock. It cannot show how long CPUs would wait for those.
 *
 * The allocator is unchanged. It reads the number of its slot from the thread's rseq area, and rseq_probe() says
 * where that is: here, in a variable of this program. The kernel restarts no section then, and there is nothing to
 * restart for, because no other thread runs.
 */
#define _GNU_SOURCE
#include "../measure.h"
#include "cache/kmem_cache.h"
#include "drop_empty.h"
#include "platform/os/cpu.h"

#include <stdio.h>
#include <string.h>

enum { CPUS_OF_DOMAIN = 48, MOST_SLOTS = 384, WORST = 8, WAITING = 64, BURST = 200, HELD = 1000 };

/* In the place of struct rseq. The load of the number begins two bytes below it on x86-64. */
static _Thread_local struct {
    volatile uint64_t cs;
    uint32_t below;
    volatile uint32_t slot;
} simulated;

static struct {
    const char *test;
    unsigned slots, capacity;
    uint64_t ops;
} run = {.slots = 8, .ops = 4000000};

static struct {
    uint64_t allocated, barn_get, barn_put, empty_get, empty_put, slab, foreign;
} counts;

/* ---- functions that the linker puts before the allocator's ---- */

struct sheaf *__real_barn_get(struct barn *barn);
struct sheaf *__wrap_barn_get(struct barn *barn);
struct sheaf *__wrap_barn_get(struct barn *barn)
{
    struct sheaf *sheaf = __real_barn_get(barn);
    counts.barn_get += sheaf != NULL; /* to find the barn empty takes a read of a line that is rarely written */
    return sheaf;
}

bool __real_barn_put(struct barn *barn, struct sheaf *sheaf, uint64_t limit);
bool __wrap_barn_put(struct barn *barn, struct sheaf *sheaf, uint64_t limit);
bool __wrap_barn_put(struct barn *barn, struct sheaf *sheaf, uint64_t limit)
{
    bool done = __real_barn_put(barn, sheaf, limit);
    counts.barn_put += done;
    return done;
}

struct sheaf *__real_empty_sheaf_alloc(unsigned capacity);
struct sheaf *__wrap_empty_sheaf_alloc(unsigned capacity);
struct sheaf *__wrap_empty_sheaf_alloc(unsigned capacity)
{
    counts.empty_get++;
    return __real_empty_sheaf_alloc(capacity);
}

void __real_empty_sheaf_free(struct sheaf *sheaf);
void __wrap_empty_sheaf_free(struct sheaf *sheaf);
void __wrap_empty_sheaf_free(struct sheaf *sheaf)
{
    counts.empty_put++;
    __real_empty_sheaf_free(sheaf);
}

unsigned __real_slab_take(struct slab_cache *cache, void **objects, unsigned want);
unsigned __wrap_slab_take(struct slab_cache *cache, void **objects, unsigned want);
unsigned __wrap_slab_take(struct slab_cache *cache, void **objects, unsigned want)
{
    counts.slab++;
    return __real_slab_take(cache, objects, want);
}

bool __real_slab_put(struct slab_cache *cache, void *const *objects, unsigned n, struct slab_report *report);
bool __wrap_slab_put(struct slab_cache *cache, void *const *objects, unsigned n, struct slab_report *report);
bool __wrap_slab_put(struct slab_cache *cache, void *const *objects, unsigned n, struct slab_report *report)
{
    counts.slab++;
    return __real_slab_put(cache, objects, n, report);
}

static uintptr_t from_thread_pointer(volatile void *p)
{
    return (uintptr_t)p - (uintptr_t)__builtin_thread_pointer();
}

enum rseq_owner __wrap_rseq_probe(bool own, bool want_cid, struct rseq_area *area, bool *is_cid);
enum rseq_owner __wrap_rseq_probe(bool own, bool want_cid, struct rseq_area *area, bool *is_cid)
{
    (void)own, (void)want_cid;
    *is_cid = false;
    area->cs = from_thread_pointer(&simulated.cs);
    area->slot = from_thread_pointer(&simulated.slot);
    return RSEQ_LIBC;
}

void __wrap_cpu_count(unsigned *possible, unsigned *allowed);
void __wrap_cpu_count(unsigned *possible, unsigned *allowed)
{
    *possible = *allowed = cpu_allowed_count = run.slots;
}

unsigned __wrap_cpu_current(void);
unsigned __wrap_cpu_current(void)
{
    return simulated.slot;
}

unsigned __wrap_cpu_llc(void);
unsigned __wrap_cpu_llc(void)
{
    return simulated.slot / CPUS_OF_DOMAIN;
}

/* ---- loads ---- */

static struct kmem_cache *nodes, *objects;
static uint64_t seed = 88172645463325252u;

static unsigned below(unsigned n)
{
    return (unsigned)((random_next(&seed) >> 32) % n);
}

static void *take_one(struct kmem_cache *cache)
{
    void *object = kmem_cache_alloc(cache, GFP_KERNEL);
    if (!object)
        fail("no memory; run with fewer --slots");
    counts.allocated++;
    return object;
}

struct cpu {
    unsigned n;
    void *held[HELD + BURST];
};
static struct cpu *cpus;

/* Each slot holds a number of objects that rises and falls at random. */
static void play_walk(void)
{
    struct cpu *cpu = &cpus[simulated.slot];
    unsigned steps = 1 + below(BURST);
    if (cpu->n + steps > HELD || (cpu->n >= steps && below(2)))
        for (; steps; steps--) {
            unsigned k = below(cpu->n);
            kmem_cache_free(objects, cpu->held[k]);
            cpu->held[k] = cpu->held[--cpu->n];
        }
    else
        for (; steps; steps--)
            cpu->held[cpu->n++] = take_one(objects);
}

/* As bench-deferred's mmap2, with a delay of WAITING nodes for the grace period. */
static void play_mmap2(void)
{
    struct cpu *cpu = &cpus[simulated.slot];
    struct slab_sheaf *sheaf = kmem_cache_prefill_sheaf(nodes, GFP_KERNEL, WORST);
    if (!sheaf)
        fail("no memory; run with fewer --slots");
    cpu->held[cpu->n++] = kmem_cache_alloc_from_sheaf(nodes, 0, sheaf);
    cpu->held[cpu->n++] = kmem_cache_alloc_from_sheaf(nodes, 0, sheaf);
    kmem_cache_return_sheaf(nodes, 0, sheaf);
    counts.allocated += 2;
    kmem_cache_free(objects, take_one(objects));
    if (cpu->n < WAITING)
        return;
    while (cpu->n)
        kmem_cache_free(nodes, cpu->held[--cpu->n]);
}

/* The first half of the slots allocates, each for a partner in the second half, which frees. */
static void play_cross(void)
{
    unsigned half = run.slots / 2, producer = simulated.slot % half;
    struct cpu *cpu = &cpus[producer];
    unsigned n = 1 + below(BURST);
    simulated.slot = producer;
    while (n-- && cpu->n < HELD)
        cpu->held[cpu->n++] = take_one(objects);
    simulated.slot = producer + half;
    for (n = 1 + below(BURST); n && cpu->n; n--, counts.foreign++)
        kmem_cache_free(objects, cpu->held[--cpu->n]);
}

/* A fork: 200 objects taken on one slot, freed on another, where the child ended. */
static void play_fork(void)
{
    void *clone[BURST];
    for (unsigned i = 0; i < BURST; i++)
        clone[i] = take_one(objects);
    unsigned from = simulated.slot;
    simulated.slot = below(run.slots);
    for (unsigned i = 0; i < BURST; i++)
        kmem_cache_free(objects, clone[i]);
    counts.foreign += simulated.slot == from ? 0 : BURST;
}

static const struct {
    const char *name;
    void (*play)(void);
} tests[] = {{"walk", play_walk}, {"mmap2", play_mmap2}, {"cross", play_cross}, {"fork", play_fork}};

static void play(void (*turn)(void), uint64_t ops)
{
    memset(&counts, 0, sizeof(counts));
    while (counts.allocated < ops) {
        simulated.slot = below(run.slots);
        turn();
    }
}

static void report(void)
{
    double per = 1e6 / (double)counts.allocated;
    uint64_t shared = counts.barn_get + counts.barn_put + counts.empty_get + counts.empty_put + counts.slab;
    printf(
        "{\"test\": \"%s\", \"slots\": %u, \"capacity\": %u, \"keep\": %d, \"barn_get\": %.0f, \"barn_put\": %.0f, "
        "\"empty_get\": %.0f, \"empty_put\": %.0f, \"slab\": %.0f, \"foreign\": %.0f, \"shared\": %.0f}\n",
        run.test, run.slots, run.capacity, !drop_empty, (double)counts.barn_get * per, (double)counts.barn_put * per,
        (double)counts.empty_get * per, (double)counts.empty_put * per, (double)counts.slab * per,
        (double)counts.foreign * per, (double)shared * per);
}

static void (*read_arguments(int argc, char **argv))(void)
{
    run.test = argc > 1 ? argv[1] : "";
    for (int i = 2; i < argc; i++) {
        if (!strcmp(argv[i], "--no-keep")) {
            drop_empty = true;
            continue;
        }
        if (!strcmp(argv[i], "--slots"))
            run.slots = (unsigned)number_argument("--slots", argv[i + 1], MOST_SLOTS);
        else if (!strcmp(argv[i], "--capacity"))
            run.capacity = (unsigned)number_argument("--capacity", argv[i + 1], 509);
        else if (!strcmp(argv[i], "--ops"))
            run.ops = number_argument("--ops", argv[i + 1], UINT64_C(1) << 40);
        else
            fail("'%s' is not understood; options: --slots N --capacity N --no-keep --ops N", argv[i]);
        i++;
    }
    if (run.slots < 2)
        fail("--slots: two at least");
    for (size_t t = 0; t < array_size(tests); t++)
        if (!strcmp(tests[t].name, run.test))
            return tests[t].play;
    fail("no test '%s'; there are walk, mmap2, cross, fork", run.test);
}

int main(int argc, char **argv)
{
    void (*turn)(void) = read_arguments(argc, argv);
    struct kmem_cache_args args = {.sheaf_capacity = run.capacity};
    sheaf_config.rseq = RSEQ_AUTO;
    sheaf_config.slots = SLOTS_CPU_ID;
    sheaf_config.decay_ms = 0; /* counts must not depend on time */
    nodes = kmem_cache_create("node", 256, &args, SLAB_HWCACHE_ALIGN);
    objects = kmem_cache_create("object", 184, &args, 0);
    if (!nodes || !objects || slot_mode != SHEAF_MODE_RSEQ_CPU_ID)
        fail("no memory; run with fewer --slots");
    cpus = scratch(run.slots * sizeof(*cpus));
    play(turn, run.ops / 4); /* sheaves and barns grow to their sizes */
    play(turn, run.ops);
    report();
    return 0;
}
