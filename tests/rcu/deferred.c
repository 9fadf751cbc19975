/* Deferred frees: what readers, barriers and destruction wait for, for how long, and what is counted. */
#include "rcu.h"
#include "process/census.h"
#include "process/decay.h"

/* The other cases rely on this check: an object that is freed too early is reused and overwritten. */
CASE(early_free_is_noticed)
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

CASE(reader_keeps_objects)
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
    usleep(200000); /* enough for an early free to happen */
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

CASE(barrier_waits_for_readers)
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

/* The low bits of a slot's word count the threads that hold its sheaf. Here one seems to be preempted. */
CASE(barrier_waits_for_holders)
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

/* Behaves like threads that add an object to the sheaf: takes the slot's sheaf and soon puts it back. */
static _Atomic bool holders_stop;
static void *take_and_put_back(void *cache)
{
    enum { HOLDERS = 63 };
    unsigned number = ((struct kmem_cache *)cache)->number;
    while (!atomic_load(&holders_stop)) {
        for (unsigned slot = 0; slot < read_once(slot_top) && slot_commit(slot); slot++) {
            _Atomic uint32_t *word = (_Atomic uint32_t *)&slot_rcu(slot)[number];
            uint32_t seen = atomic_load(word), sheaf = seen & ~(uint32_t)HOLDERS;
            if (!sheaf || (seen & HOLDERS) == HOLDERS ||
                !atomic_compare_exchange_strong(word, &seen, (seen & HOLDERS) + 1))
                continue;
            do
                seen = atomic_load(word) & HOLDERS; /* waits until the barrier has taken a newer sheaf */
            while (!atomic_compare_exchange_weak(word, &seen, (seen - 1) | sheaf));
        }
    }
    return NULL;
}

CASE(barrier_waits_for_new_holders)
{
    struct kmem_cache *cache = make_cache(100, 0, 0);
    pthread_t thread;
    must(!pthread_create(&thread, NULL, take_and_put_back, cache));
    for (unsigned i = 1; i <= 40000; i++) {
        kmem_cache_free_rcu(cache, kmem_cache_alloc(cache, 0));
        kvfree_rcu_barrier_on_cache(cache);
        must(counter_sum(cache->number, COUNT_free_rcu_done) == i);
    }
    atomic_store(&holders_stop, true);
    pthread_join(thread, NULL);
    check_empty(cache);
}

CASE(barrier_in_section_returns)
{
    struct kmem_cache *cache = make_cache(100, 0, 0);
    rcu_read_lock();
    kmem_cache_free_rcu(cache, kmem_cache_alloc(cache, 0));
    kvfree_rcu_barrier();
    must(rcu_objects(cache) == 1);
    rcu_read_unlock();
    check_empty(cache);
}

/* Destroying a cache waits for readers only if objects of this cache wait for them. */
CASE(destroy_waits_only_for_own_objects)
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

CASE(single_objects_are_freed_by_age)
{
    struct kmem_cache *cache = make_cache(64, 253, 0);
    kmem_cache_free_rcu(cache, kmem_cache_alloc(cache, 0));
    while (rcu_objects(cache))
        usleep(1000);
    kmem_cache_free_rcu(cache, kmem_cache_alloc(cache, 0)); /* now the thread sleeps without a timeout */
    while (rcu_objects(cache))
        usleep(1000);
    check_empty(cache);
}

CASE(sheaves_are_reused)
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
 * Little more than the limit may wait, and it is freed eventually. A caller whose wait times out, because the
 * freeing thread gets no CPU, continues: each wait that is counted beyond `waits` may add `each` bytes.
 */
static void bounded(uint64_t most, uint64_t waits, uint64_t each)
{
    struct sheaf_rcu_stats now = stats_now();
    must(now.bytes < most + (now.waits - waits) * each);
    while (stats_now().bytes >= most)
        usleep(1000);
}

/*
 * While a reader stays in its section, a caller beyond the limit waits for a limited time only, and not at all if
 * it is in a section itself.
 */
CASE(memory_is_bounded)
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

/* Each large block counts towards the limit immediately, although several of them share a sheaf. */
CASE(large_blocks_are_bounded)
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
    must(stats_now().bytes == 0 && region_stats.large_slices == 0);
}

struct item {
    char data[40];
    struct rcu_head rcu;
};

CASE(malloc_of_all_sizes)
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
    uint64_t before = region_stats.large_slices;
    end_reader(&reader);
    kvfree_rcu_barrier();
    must(stats_now().bytes == 0 && region_stats.large_slices < before);
}

/* Blocks outside the region can be freed, too. */
CASE(outside_the_region)
{
    sheaf_free(sheaf_malloc(1));
    void *p = mapped_alloc(1 << 20, 1);
    must(p && mapped_bytes());
    kfree_rcu(p);
    kvfree_rcu_barrier();
    must(mapped_bytes() == 0);
}

/* A slab of such a cache is not reused for other objects while a reader may access it. */
CASE(typesafe_slabs_are_kept)
{
    struct kmem_cache *cache = make_cache(4096, 5, SLAB_TYPESAFE_BY_RCU);
    struct reader reader;
    void *objects[200];
    for (int i = 0; i < 200; i++)
        memset(objects[i] = kmem_cache_alloc(cache, 0), 1, 4096);
    start_reader(&reader);
    uint64_t slices = region_stats.slab_slices;
    for (int i = 0; i < 200; i++)
        kmem_cache_free(cache, objects[i]);
    must(kmem_cache_shrink(cache) == 0 && stats_now().slabs >= 12);
    must(region_stats.slab_slices == slices);
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

CASE(without_sheaves)
{
    struct kmem_cache *cache = make_cache(64, 0, 0);
    cache->capacity = 0; /* like in tiny mode */
    for (int i = 0; i < 1000; i++)
        kmem_cache_free_rcu(cache, kmem_cache_alloc(cache, 0));
    check_empty(cache);
}

CASE(no_memory)
{
    struct kmem_cache *cache = make_cache(64, 13, 0);
    void *object = kmem_cache_alloc(cache, 0), *lost = sheaf_malloc(64);
    struct item *item = sheaf_malloc(sizeof(*item));
    struct cache_census census;
    kmem_cache_shrink(cache);
    cache_trim_all();
    use_up_sheaves();
    kmem_cache_free_rcu(cache, object); /* without a sheaf the call itself waits for a grace period */
    cache_census(cache, &census);
    must(census.in_use == 0 && stats_now().single == 0 && stats_now().lost == 0);
    rcu_read_lock();
    kfree_rcu(item, rcu); /* uses the rcu_head */
    must(stats_now().single == 1 && stats_now().lost == 0);
    kfree_rcu(lost);
    must(stats_now().single == 1 && stats_now().lost == 1);
    rcu_read_unlock();
    kvfree_rcu_barrier();
    must(stats_now().single == 0);
}
