/* Deferred frees by themselves: who waits for whom, for how long, and what is counted. */
#include "rcu.h"
#include "process/census.h"
#include "process/decay.h"

/* That the check which the others rely on sees a free which comes too early. */
static void early_free_is_seen(void)
{
    struct kmem_cache *cache = make_cache(64, 13, 0);
    unsigned char *held = kmem_cache_alloc(cache, 0);
    memset(held, 1, 64);
    kmem_cache_free(cache, held);
    bool seen = false;
    for (int i = 0; i < 100 && !seen; i++)
        seen = take_poisoned(cache) == held && held[63] == POISON;
    must(seen);
}

static void reader_keeps_objects(void)
{
    enum { OBJECTS = 1000 };
    struct kmem_cache *cache = make_cache(64, 13, 0);
    unsigned char *held[OBJECTS];
    struct reader reader;
    for (int i = 0; i < OBJECTS; i++)
        memset(held[i] = kmem_cache_alloc(cache, 0), 1, 64);
    start_reader(&reader);
    for (int i = 0; i < OBJECTS; i++)
        kmem_cache_free_rcu(cache, held[i]);
    usleep(200000); /* what comes back too early is back by then */
    void *others[3 * OBJECTS];
    for (int i = 0; i < 3 * OBJECTS; i++)
        others[i] = take_poisoned(cache);
    for (int i = 0; i < OBJECTS; i++)
        must(held[i][0] == 1 && held[i][63] == 1);
    must(rcu_objects(cache) == OBJECTS);
    end_reader(&reader);
    for (int i = 0; i < 3 * OBJECTS; i++)
        kmem_cache_free(cache, others[i]);
    check_empty(cache);
}

static void barrier_waits(void)
{
    struct kmem_cache *cache = make_cache(100, 0, 0);
    struct reader reader;
    struct barrier barrier;
    start_reader(&reader);
    kmem_cache_free_rcu(cache, kmem_cache_alloc(cache, 0));
    start_barrier(&barrier, cache);
    usleep(100000);
    must(!atomic_load(&barrier.done) && rcu_objects(cache) == 1);
    end_reader(&reader);
    must(!pthread_join(barrier.thread, NULL) && rcu_objects(cache) == 0);
    kvfree_rcu_barrier();
    check_empty(cache);
}

/* As if a thread had been preempted with the sheaf in hand: what is in it was freed before. */
static void barrier_waits_for_hands(void)
{
    struct kmem_cache *cache = make_cache(100, 0, 0);
    struct barrier barrier;
    kmem_cache_free_rcu(cache, kmem_cache_alloc(cache, 0));
    kvfree_rcu_barrier_on_cache(cache);
    for (unsigned slot = 0; slot < space.slots && slot_commit(slot); slot++)
        __atomic_fetch_add(&slot_rcu(slot)[cache->number], 1, __ATOMIC_SEQ_CST);
    kmem_cache_free_rcu(cache, kmem_cache_alloc(cache, 0));
    start_barrier(&barrier, cache);
    usleep(100000);
    must(!atomic_load(&barrier.done));
    for (unsigned slot = 0; slot < space.slots && slot_commit(slot); slot++)
        __atomic_fetch_sub(&slot_rcu(slot)[cache->number], 1, __ATOMIC_SEQ_CST);
    must(!pthread_join(barrier.thread, NULL) && rcu_objects(cache) == 0);
    check_empty(cache);
}

/* As threads that add an object of theirs: the sheaf is in hand for a moment, then in its place again. */
static _Atomic bool hands_rest;
static void *come_and_go(void *cache)
{
    enum { HANDS = 63 };
    unsigned number = ((struct kmem_cache *)cache)->number;
    while (!atomic_load(&hands_rest)) {
        for (unsigned slot = 0; slot < read_once(slot_top) && slot_commit(slot); slot++) {
            _Atomic uint32_t *word = (_Atomic uint32_t *)&slot_rcu(slot)[number];
            uint32_t seen = atomic_load(word), sheaf = seen & ~(uint32_t)HANDS;
            if (!sheaf || (seen & HANDS) == HANDS || !atomic_compare_exchange_strong(word, &seen, (seen & HANDS) + 1))
                continue;
            do
                seen = atomic_load(word) & HANDS; /* a sheaf that came meanwhile the barrier takes away */
            while (!atomic_compare_exchange_weak(word, &seen, (seen - 1) | sheaf));
        }
    }
    return NULL;
}

static void barrier_sees_hands_that_come_meanwhile(void)
{
    struct kmem_cache *cache = make_cache(100, 0, 0);
    pthread_t thread;
    must(!pthread_create(&thread, NULL, come_and_go, cache));
    for (unsigned i = 1; i <= 40000; i++) {
        kmem_cache_free_rcu(cache, kmem_cache_alloc(cache, 0));
        kvfree_rcu_barrier_on_cache(cache);
        must(counter_sum(cache->number, COUNT_free_rcu_done) == i);
    }
    atomic_store(&hands_rest, true);
    pthread_join(thread, NULL);
    check_empty(cache);
}

static void barrier_in_section_returns(void)
{
    struct kmem_cache *cache = make_cache(100, 0, 0);
    rcu_read_lock();
    kmem_cache_free_rcu(cache, kmem_cache_alloc(cache, 0));
    kvfree_rcu_barrier();
    must(rcu_objects(cache) == 1);
    rcu_read_unlock();
    check_empty(cache);
}

/* A cache of which nothing waits is destroyed though readers of another one stay; one of which something does, waits.
 */
static void destroy_waits_for_its_own(void)
{
    struct kmem_cache *idle = make_cache(64, 0, 0), *busy = make_cache(64, 0, 0);
    struct reader reader;
    kmem_cache_free_rcu(idle, kmem_cache_alloc(idle, 0));
    kvfree_rcu_barrier();
    start_reader(&reader);
    for (int i = 0; i < 500; i++)
        kmem_cache_free_rcu(busy, kmem_cache_alloc(busy, 0));
    must(kmem_cache_destroy(idle) == 0);
    end_reader(&reader);
    must(kmem_cache_destroy(busy) == 0);
}

static void old_ones_go(void)
{
    struct kmem_cache *cache = make_cache(64, 253, 0);
    kmem_cache_free_rcu(cache, kmem_cache_alloc(cache, 0));
    while (rcu_objects(cache)) /* or the alarm */
        usleep(1000);
    kmem_cache_free_rcu(cache, kmem_cache_alloc(cache, 0)); /* the thread slept without a timeout meanwhile */
    while (rcu_objects(cache))
        usleep(1000);
    check_empty(cache);
}

static void sheaves_are_reused(void)
{
    struct kmem_cache *cache = make_cache(64, 61, 0);
    for (int i = 0; i < 61 * 100; i++)
        kmem_cache_free_rcu(cache, kmem_cache_alloc(cache, 0));
    kvfree_rcu_barrier();
    must(counter_sum(cache->number, COUNT_free_rcu) == 6100 &&
         counter_sum(cache->number, COUNT_free_rcu_done) == 6100);
    must(counter_sum(cache->number, COUNT_rcu_sheaf) >= 100 && counter_sum(cache->number, COUNT_rcu_recycle) > 0);
    must(counter_sum(cache->number, COUNT_free_slowpath) + counter_sum(cache->number, COUNT_free_fastpath) == 0);
    check_empty(cache);
}

/*
 * Little more than the limit waits, and is freed. Who waited in vain, since the thread that frees gets no CPU, goes
 * on: each such wait, counted from `waits`, may add `each` bytes.
 */
static void bounded(uint64_t most, uint64_t waits, uint64_t each)
{
    struct sheaf_rcu_stats now = stats_now();
    must(now.bytes < most + (now.waits - waits) * each);
    while (stats_now().bytes >= most) /* or the alarm */
        usleep(1000);
}

/* Readers never leave: callers are slowed down, not stuck; in sections of their own they are not even slowed. */
static void memory_is_bounded(void)
{
    enum { LIMIT = 256 << 10, SIZE = 1024, OBJECTS = LIMIT / SIZE + 13 * 20 };
    struct kmem_cache *cache = make_cache(SIZE, 13, 0);
    struct reader reader;
    sheaf_rcu_tune(LIMIT, 0);
    start_reader(&reader);
    for (int i = 0; i < OBJECTS; i++)
        kmem_cache_free_rcu(cache, kmem_cache_alloc(cache, 0));
    uint64_t waits = stats_now().waits;
    must(waits > 5 && stats_now().bytes > LIMIT);
    rcu_read_lock();
    for (int i = 0; i < 100; i++)
        kmem_cache_free_rcu(cache, kmem_cache_alloc(cache, 0));
    rcu_read_unlock();
    must(stats_now().waits == waits);
    end_reader(&reader);
    kvfree_rcu_barrier();
    waits = stats_now().waits;
    for (int i = 0; i < 50 * OBJECTS; i++) {
        kmem_cache_free_rcu(cache, kmem_cache_alloc(cache, 0));
        bounded(2 * LIMIT, waits, 13 * SIZE);
    }
    check_empty(cache);
    must(stats_now().bytes == 0 && stats_now().sheaves == 0);
}

/* Large blocks count one by one, though they wait together. */
static void large_blocks_are_bounded(void)
{
    enum { LIMIT = 4 << 20, SIZE = 500000 };
    struct reader reader;
    sheaf_rcu_tune(LIMIT, 86400000);
    start_reader(&reader);
    for (int i = 0; i < 20; i++)
        kfree_rcu(sheaf_malloc(SIZE));
    must(stats_now().waits >= 10);
    end_reader(&reader);
    kvfree_rcu_barrier();
    uint64_t waits = stats_now().waits;
    for (int i = 0; i < 500; i++) {
        kfree_rcu(sheaf_malloc(SIZE));
        bounded(4 * LIMIT, waits, 2 * SIZE);
    }
    kvfree_rcu_barrier();
    must(stats_now().bytes == 0 && region_stats.large_units == 0);
}

struct item {
    char data[40];
    struct rcu_head rcu;
};

static void malloc_of_all_sizes(void)
{
    struct reader reader;
    start_reader(&reader);
    unsigned char *blocks[40];
    for (unsigned i = 0; i < 40; i++) {
        size_t size = (size_t)16 << (i % 20);
        must(blocks[i] = sheaf_malloc(size));
        memset(blocks[i], 1, size);
        kfree_rcu(blocks[i]);
    }
    kfree_rcu((void *)NULL);
    struct item *item = sheaf_malloc(sizeof(*item)), *none = NULL;
    kfree_rcu(item, rcu);
    kvfree_rcu(none, rcu);
    for (int i = 0; i < 200; i++)
        memset(sheaf_malloc((size_t)16 << (i % 20)), POISON, (size_t)16 << (i % 20));
    for (unsigned i = 0; i < 40; i++)
        must(blocks[i][0] == 1 && blocks[i][((size_t)16 << (i % 20)) - 1] == 1);
    must(stats_now().bytes >= 16u << 20);
    uint64_t before = region_stats.large_units;
    end_reader(&reader);
    kvfree_rcu_barrier();
    must(stats_now().bytes == 0 && region_stats.large_units < before);
}

/* Blocks that did not fit into the region. */
static void outside_the_region(void)
{
    sheaf_free(sheaf_malloc(1));
    void *p = outside_alloc(1 << 20, 1);
    must(p && outside_bytes());
    kfree_rcu(p);
    kvfree_rcu_barrier();
    must(outside_bytes() == 0);
}

/* A slab of such a cache is no other memory as long as a reader may look at it. */
static void typesafe(void)
{
    struct kmem_cache *cache = make_cache(4096, 5, SLAB_TYPESAFE_BY_RCU);
    struct reader reader;
    void *objects[200];
    for (int i = 0; i < 200; i++)
        memset(objects[i] = kmem_cache_alloc(cache, 0), 1, 4096);
    start_reader(&reader);
    uint64_t units = region_stats.slab_units;
    for (int i = 0; i < 200; i++)
        kmem_cache_free(cache, objects[i]);
    must(kmem_cache_shrink(cache) == 0 && stats_now().slabs >= 12);
    must(region_stats.slab_units == units);
    must(kmem_cache_destroy(cache) == 0);
    struct kmem_cache *other = make_cache(4096, 5, 0);
    for (int i = 0; i < 400; i++)
        take_poisoned(other);
    for (int i = 0; i < 200; i++)
        must(*(unsigned char *)objects[i] == 1);
    end_reader(&reader);
    kvfree_rcu_barrier();
    must(stats_now().slabs == 0);
}

static void without_sheaves(void)
{
    struct kmem_cache *cache = make_cache(64, 0, 0);
    cache->capacity = 0; /* as in tiny mode */
    for (int i = 0; i < 1000; i++)
        kmem_cache_free_rcu(cache, kmem_cache_alloc(cache, 0));
    check_empty(cache);
}

/* No sheaf can be had, of whatever size. */
static void use_up_sheaves(void)
{
    space.sheaves.most = 0;
    for (unsigned order = SHEAF_ORDER_MIN; order <= SHEAF_ORDER_MAX; order++)
        while (empty_sheaf_alloc(sheaf_capacity_of(order))) {
        }
}

static void no_memory(void)
{
    struct kmem_cache *cache = make_cache(64, 13, 0);
    void *object = kmem_cache_alloc(cache, 0), *lost = sheaf_malloc(64);
    struct item *item = sheaf_malloc(sizeof(*item));
    struct cache_census census;
    kmem_cache_shrink(cache);
    cache_trim_all();
    use_up_sheaves();
    kmem_cache_free_rcu(cache, object); /* waits here */
    cache_census(cache, &census);
    must(census.in_use == 0 && stats_now().single == 0 && stats_now().lost == 0);
    rcu_read_lock();
    kfree_rcu(item, rcu); /* by its head */
    must(stats_now().single == 1 && stats_now().lost == 0);
    kfree_rcu(lost);
    must(stats_now().single == 1 && stats_now().lost == 1);
    rcu_read_unlock();
    kvfree_rcu_barrier();
    must(stats_now().single == 0);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        {"early_free_is_seen", early_free_is_seen},
        {"reader_keeps_objects", reader_keeps_objects},
        {"barrier_waits", barrier_waits},
        {"barrier_waits_for_hands", barrier_waits_for_hands},
        {"barrier_sees_hands_that_come_meanwhile", barrier_sees_hands_that_come_meanwhile},
        {"barrier_in_section_returns", barrier_in_section_returns},
        {"destroy_waits_for_its_own", destroy_waits_for_its_own},
        {"old_ones_go", old_ones_go},
        {"sheaves_are_reused", sheaves_are_reused},
        {"memory_is_bounded", memory_is_bounded},
        {"large_blocks_are_bounded", large_blocks_are_bounded},
        {"malloc_of_all_sizes", malloc_of_all_sizes},
        {"outside_the_region", outside_the_region},
        {"typesafe", typesafe},
        {"without_sheaves", without_sheaves},
        {"no_memory", no_memory},
    };
    return run_cases(argc, argv, cases, array_size(cases));
}
