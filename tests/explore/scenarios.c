/* The scenarios. Sheaves hold two to four objects, and caches few slabs, so that every edge is near. */
#include "heap.h"
#include "cache/decay.h"
#include "cache/deferred/rcu.h"
#include "cache/remote.h"
#include "front/malloc/deferred.h"
#include "memory/region/region.h"
#include "memory/space/locks.h"
#include "platform/os/vm.h"
#include "process/decay.h"
#include "process/helper.h"
#include "sheaf/malloc.h"

#include <string.h>

/* ---- the start ---- */

static void small(void)
{
    create(64, 4);
    warm(0, 3);
    warm(1, 2);
}

static void small_cold(void)
{
    create(64, 4);
}

static void small_two(void)
{
    create(64, 2);
    warm(0, 3);
    warm(1, 2);
}

static void large(void)
{
    create(2048, 4);
    warm(0, 3);
    warm(1, 2);
}

/* Sheaves in the barn, too. */
static void full(void)
{
    create(64, 2);
    warm(0, 12);
    warm(1, 6);
}

/* Options of the library. */
static void use_locks(struct sheaf_config *config)
{
    config->rseq = RSEQ_OFF;
}

static void use_nodes(struct sheaf_config *config)
{
    config->nodes = 2;
}

static void use_samples(struct sheaf_config *config)
{
    config->profile = 64;
}

static void use_quarantine(struct sheaf_config *config)
{
    config->harden.quarantine = 256;
    config->harden.check = true;
}

static void use_guards(struct sheaf_config *config)
{
    config->harden.sample = 2;
}

static void locks(void)
{
    explore_configure = use_locks;
    small();
}

static void locks_large(void)
{
    explore_configure = use_locks;
    large();
}

static void nodes(void)
{
    explore_configure = use_nodes;
    small();
}

static void samples(void)
{
    explore_configure = use_samples;
    sheaf_free(sheaf_malloc(40));
}

static void quarantine(void)
{
    explore_configure = use_quarantine;
    sheaf_free(sheaf_malloc(40));
}

static void guards(void)
{
    explore_configure = use_guards;
    sheaf_free(sheaf_malloc(40));
}

static void staged(void)
{
    vm_staged = true;
    small();
}

/* ---- what threads do ---- */

static void pair(void)
{
    give(take());
}

static void two_pairs(void)
{
    void *a = take(), *b = take();
    give(a);
    give(b);
}

static void many(void)
{
    void *objects[7];
    for (unsigned i = 0; i < 7; i++)
        objects[i] = take();
    for (unsigned i = 0; i < 7; i++)
        give(objects[i]);
}

static void keep_two(void)
{
    take();
    take();
}

static void shrink(void)
{
    kmem_cache_shrink(cache);
}

static void in_handler(void)
{
    void *object = try_take();
    if (object)
        give(object);
}

static void locked_drain(enum remote_aim aim)
{
    if (!lock_acquire(lock_of(LOCK_DRAIN)))
        explore_fail("the lock of remote drains is refused");
    remote_drain(cache, 0, CPUS, aim);
    lock_release(lock_of(LOCK_DRAIN));
}

static void fold(void)
{
    locked_drain(REMOTE_COUNT);
}

static void drain_in_handler(void)
{
    cache_drain(cache);
}

static void age(void)
{
    if (!lock_acquire(lock_of(LOCK_DRAIN)))
        explore_fail("the lock of remote drains is refused");
    for (unsigned i = 0; i < 2; i++) { /* what the first sees unused, the second empties */
        decay_slot(cache, 0);
        decay_slot(cache, 1);
    }
    decay_barns(cache, DECAY_AGED);
    lock_release(lock_of(LOCK_DRAIN));
}

/* A step of decay that is due, as slow paths find it. */
static void late(void)
{
    explore_sleep(3000);
    decay_poll(1);
    explore_sleep(3000);
    decay_poll(1);
}

/* What the helper thread does. */
static void rounds(void)
{
    struct helper_rounds rounds = {.quiet = 0};
    for (unsigned i = 0; i < 3; i++) {
        explore_sleep(200);
        helper_round(&rounds);
    }
}

static void burst(void)
{
    decay_after_burst();
}

static void trim(void)
{
    cache_trim_all();
}

/* Each object is freed on the node where it does not belong. */
static void on_nodes(void)
{
    void *a = kmem_cache_alloc_node(cache, 0, 0), *b = kmem_cache_alloc_node(cache, 0, 1);
    hold(a, kmem_cache_size(cache));
    hold(b, kmem_cache_size(cache));
    give(a);
    give(b);
}

/* ---- objects that pass to another thread ---- */

static void *passed[4];
static unsigned passed_count;

static void produce(void)
{
    for (unsigned i = 0; i < 3; i++) {
        passed[i] = take();
        passed_count = i + 1;
    }
}

static void consume(void)
{
    for (unsigned i = 0; i < passed_count; i++)
        give(passed[i]);
}

/* ---- bulk, prefilled sheaves, the reserve ---- */

static void bulk(void)
{
    void *objects[5];
    if (!kmem_cache_alloc_bulk(cache, 0, 5, objects))
        explore_fail("a bulk allocation failed");
    for (unsigned i = 0; i < 5; i++)
        hold(objects[i], kmem_cache_size(cache));
    for (unsigned i = 0; i < 5; i++)
        let_go(objects[i]);
    kmem_cache_free_bulk(cache, 5, objects);
}

static void prefill(void)
{
    struct slab_sheaf *sheaf = kmem_cache_prefill_sheaf(cache, 0, 2);
    if (!sheaf)
        explore_fail("no sheaf could be prefilled");
    void *object = kmem_cache_alloc_from_sheaf(cache, 0, sheaf);
    hold(object, kmem_cache_size(cache));
    kmem_cache_return_sheaf(cache, 0, sheaf);
    give(object);
}

static void reserve(void)
{
    if (kmem_cache_reserve(cache, 2))
        explore_fail("the reserve is refused");
    if (kmem_cache_reserve(cache, 0))
        explore_fail("the reserve cannot be ended");
}

/* ---- caches that come and go ---- */

static void create_and_destroy(void)
{
    struct kmem_cache_args args = {.sheaf_capacity = 4};
    struct kmem_cache *other = kmem_cache_create("other", 96, &args, 0);
    if (!other)
        explore_fail("no second cache could be created");
    void *object = kmem_cache_alloc(other, 0);
    hold(object, 96);
    let_go(object);
    kmem_cache_free(other, object);
    if (kmem_cache_destroy(other))
        explore_fail("an empty cache cannot be destroyed");
}

/* ---- forks ---- */

/* Sheaves that other threads had detached are lost to the child, so it does not look for each object. It must not be
 * given one that is in use. */
static void child(void)
{
    check_locks();
    void *mine = take();
    keep_two();
    give(mine);
    kmem_cache_shrink(cache);
    check_locks();
}

/* The code that the handler has interrupted may hold locks. */
static void child_of_handler(void)
{
    in_handler();
    in_handler();
}

static void forks(void)
{
    void *object = take();
    explore_fork(child);
    give(object);
}

static void fork_in_handler(void)
{
    explore_fork(child_of_handler);
}

/* ---- deferred frees ---- */

static unsigned before_barrier, after_barrier;

static void kick(void) {}
static void no_barrier(struct kmem_cache *of)
{
    (void)of;
}

static void deferred(void)
{
    small();
    sheaf_rcu_allocator_1.attach(kick, no_barrier, kick);
}

static void put_deferred(void)
{
    for (unsigned i = 0; i < 2; i++) {
        void *object = take();
        let_go(object);
        if (sheaf_rcu_allocator_1.put_object(cache, object) == SHEAF_RCU_NO_MEMORY)
            kmem_cache_free(cache, object);
        before_barrier++;
    }
}

/* What was freed before it began waits no longer when it ends. */
static void barrier(void)
{
    unsigned freed = before_barrier;
    while (sheaf_rcu_allocator_1.seal(cache, 0) & SHEAF_RCU_HELD)
        explore_relax();
    if (sheaf_rcu_allocator_1.collect())
        sheaf_rcu_allocator_1.finish();
    after_barrier = freed;
}

static void check_deferred(void)
{
    unsigned all = before_barrier;
    barrier();
    if (sheaf_rcu_allocator_1.waits(cache))
        explore_fail("objects still wait after a barrier: %u of %u", (unsigned)rcu_objects(cache), all);
    check_all();
}

/* ---- malloc ---- */

static void *take_bytes(size_t size)
{
    void *p = sheaf_malloc(size);
    if (!p)
        explore_fail("malloc(%zu) failed", size);
    hold(p, size & ~7ul);
    return p;
}

static void give_bytes(void *p)
{
    let_go(p);
    sheaf_free(p);
}

static void mallocs(void)
{
    small_cold();
    sheaf_free(sheaf_malloc(40));
}

static void malloc_pairs(void)
{
    void *a = take_bytes(40), *b = take_bytes(40);
    give_bytes(a);
    give_bytes(b);
}

static void new_class(void)
{
    give_bytes(take_bytes(200));
}

static void spans(void)
{
    void *a = take_bytes(100000), *b = take_bytes(100000);
    give_bytes(a);
    give_bytes(b);
}

/* check_cache() looks at one of the siblings only. */
static void check_nodes(void)
{
    check_locks();
    kmem_cache_shrink(cache);
    if (held_count())
        explore_fail("explorer: objects are still held");
    if (kmem_cache_destroy(cache))
        explore_fail("an empty cache cannot be destroyed");
}

static void check_malloc(void)
{
    check_locks();
    cache_trim_all();
    if (held_count())
        explore_fail("explorer: memory is still held");
}

#define CHECKED(title, prepares, checks, ...)                                                                        \
    {                                                                                                                \
        .name = title, .prepare = prepares, .check = checks, __VA_ARGS__                                             \
    }
#define SCENARIO(title, prepares, ...) CHECKED(title, prepares, check_all, __VA_ARGS__)
#define APART                          .cpu = {0, 1, 1}
#define ALIKE                          .cpu = {0, 0, 1}

const struct scenario scenarios[] = {
    /* push, pop, exchange */
    SCENARIO("pairs", small, .run = {two_pairs, two_pairs}, APART),
    SCENARIO("pairs on one CPU", small, .run = {two_pairs, two_pairs}),
    SCENARIO("first pairs", small_cold, .run = {pair, pair}, APART),
    SCENARIO("exchanges on one CPU", small_two, .run = {many, many}),
    SCENARIO("large pairs on one CPU", large, .run = {many, two_pairs}),
    SCENARIO("objects pass", small, .run = {produce, consume}, APART),
    /* remote drains */
    SCENARIO("drain, pairs", small, .run = {two_pairs, shrink}, APART),
    SCENARIO("drain, exchanges", small_two, .run = {many, shrink}, APART),
    SCENARIO("drain, allocations", small, .run = {keep_two, shrink}, APART),
    SCENARIO("drain, large pairs", large, .run = {two_pairs, shrink}, APART),
    SCENARIO("drain, two threads of a CPU", small, .run = {pair, pair, shrink}, ALIKE),
    SCENARIO("drain, pairs of its own CPU", small, .run = {two_pairs, shrink}),
    SCENARIO("fold, pairs", small, .run = {two_pairs, fold}, APART),
    SCENARIO("fold, large pairs", large, .run = {two_pairs, fold}, APART),
    SCENARIO("drain, fold, pairs", small, .run = {pair, shrink, fold}, APART),
    SCENARIO("two drains", full, .run = {shrink, shrink}, APART),
    /* spare, barn, decay */
    SCENARIO("barn, two CPUs", full, .run = {many, many}, APART),
    SCENARIO("decay, exchanges", full, .run = {many, age}, APART),
    SCENARIO("decay, large pairs", large, .run = {many, age}, APART),
    SCENARIO("burst, pairs", full, .run = {two_pairs, burst}, APART),
    SCENARIO("trim, pairs", full, .run = {two_pairs, trim}, APART),
    SCENARIO("bulk, pairs on one CPU", small, .run = {bulk, two_pairs}),
    SCENARIO("bulk, drain", small, .run = {bulk, shrink}, APART),
    SCENARIO("prefill, drain", full, .run = {prefill, shrink}, APART),
    SCENARIO("prefill, pairs on one CPU", small, .run = {prefill, two_pairs}),
    SCENARIO("reserve, pairs", small, .run = {two_pairs, reserve}, APART),
    SCENARIO("decay by the clock, exchanges", full, .run = {many, late}, APART),
    SCENARIO("rounds of the helper, pairs", full, .run = {two_pairs, rounds}, APART),
    SCENARIO("staged memory, trim, pairs", staged, .run = {many, trim}, APART),
    /* without rseq */
    SCENARIO("locks, pairs", locks, .run = {two_pairs, two_pairs}),
    SCENARIO("locks, drain", locks, .run = {many, shrink}, APART),
    SCENARIO("locks, fold, large pairs", locks_large, .run = {two_pairs, fold}, APART),
    SCENARIO("locks, handler, drain", locks, .run = {two_pairs, shrink}, APART, .handler = in_handler),
    /* caches, forks, handlers */
    SCENARIO("destruction, drain", small, .run = {create_and_destroy, trim}, APART),
    SCENARIO("destruction, decay", small, .run = {create_and_destroy, burst}, APART),
    SCENARIO("fork, pairs", small, .run = {forks, many}, APART),
    SCENARIO("fork, drain", full, .run = {forks, shrink}, APART),
    SCENARIO("handler, pairs", small, .run = {two_pairs, pair}, .handler = in_handler),
    SCENARIO("handler, drain", small, .run = {two_pairs, shrink}, APART, .handler = in_handler),
    SCENARIO("drain in a handler", small, .run = {many, two_pairs}, APART, .handler = drain_in_handler),
    SCENARIO("fork in a handler", small, .run = {many, shrink}, APART, .handler = fork_in_handler),
    /* deferred frees */
    CHECKED("deferred, barrier", deferred, check_deferred, .run = {put_deferred, barrier}, APART),
    CHECKED("deferred on one CPU", deferred, check_deferred, .run = {put_deferred, put_deferred}),
    CHECKED("deferred, barrier, drain", deferred, check_deferred, .run = {put_deferred, barrier, shrink}, APART),
    /* malloc */
    CHECKED("malloc, trim", mallocs, check_malloc, .run = {malloc_pairs, trim}, APART),
    CHECKED("malloc, first of a class", mallocs, check_malloc, .run = {new_class, new_class}, APART),
    CHECKED("malloc, spans", mallocs, check_malloc, .run = {spans, spans}),
    CHECKED("samples, pairs", samples, check_malloc, .run = {malloc_pairs, malloc_pairs}, APART),
    CHECKED("samples, trim", samples, check_malloc, .run = {malloc_pairs, trim}, APART),
    CHECKED("quarantine, pairs", quarantine, check_malloc, .run = {malloc_pairs, malloc_pairs}, APART),
    CHECKED("guarded samples, pairs", guards, check_malloc, .run = {malloc_pairs, malloc_pairs}, APART),
    CHECKED("nodes, drain", nodes, check_nodes, .run = {on_nodes, shrink}, APART),
    CHECKED("nodes, pairs", nodes, check_nodes, .run = {on_nodes, on_nodes}, APART),
    CHECKED("malloc, spans, trim", mallocs, check_malloc, .run = {spans, trim}, APART),
};
const unsigned scenario_count = sizeof(scenarios) / sizeof(scenarios[0]);
