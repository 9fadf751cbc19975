/* Deferred frees at full speed: a lock-free hash table, barriers, signal handlers, forks. */
#include "rcu.h"
#include "platform/os/hooks.h"
#include "process/decay.h"

#include <urcu/rculfhash.h>

#include <signal.h>
#include <time.h>

/* ---- readers use liburcu's hash table while its nodes are replaced ---- */

enum { KEYS = 256, REPLACES = 60000, WRITERS = 2, READERS = 2, WORDS = 5 };

struct node {
    struct cds_lfht_node link;
    uint64_t key;
    uint64_t data[WORDS];
    struct rcu_head rcu;
};

static struct cds_lfht *table;
static struct kmem_cache *nodes;
static _Atomic bool stop;

static int same_key(struct cds_lfht_node *link, const void *key)
{
    return caa_container_of(link, struct node, link)->key == *(const uint64_t *)key;
}

/* Nodes with even keys come from a cache, nodes with odd keys from malloc. */
static struct node *make_node(uint64_t key, uint64_t version)
{
    struct node *node = key % 2 ? sheaf_malloc(sizeof(*node)) : kmem_cache_alloc(nodes, 0);
    must(node);
    memset(node, POISON, sizeof(*node)); /* a reader that still uses this memory notices it */
    cds_lfht_node_init(&node->link);
    node->key = key;
    for (int i = 0; i < WORDS; i++)
        node->data[i] = key << 32 | version;
    return node;
}

static void drop_node(struct node *node)
{
    if (node->key % 2)
        kfree_rcu(node, rcu);
    else
        kmem_cache_free_rcu(nodes, node);
}

static void *writer(void *number)
{
    uint64_t seed = (uintptr_t)number + 1;
    for (uint64_t i = 1; i <= REPLACES; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        struct node *node = make_node(seed >> 33 & (KEYS - 1), i);
        rcu_read_lock();
        struct cds_lfht_node *old =
            cds_lfht_add_replace(table, node->key * 2654435761u, same_key, &node->key, &node->link);
        rcu_read_unlock();
        if (old)
            drop_node(caa_container_of(old, struct node, link));
    }
    return NULL;
}

static void check_node(const struct node *node, uint64_t key)
{
    uint64_t first = read_once(node->data[0]);
    must(first >> 32 == key);
    for (int i = 0; i < WORDS; i++)
        must(read_once(node->data[i]) == first);
}

static void *looker(void *number)
{
    uint64_t seed = (uintptr_t)number + 99;
    bool found = false;
    while (!atomic_load(&stop) || !found) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        uint64_t key = seed >> 33 & (KEYS - 1);
        struct cds_lfht_iter iter;
        rcu_read_lock();
        cds_lfht_lookup(table, key * 2654435761u, same_key, &key, &iter);
        struct cds_lfht_node *link = cds_lfht_iter_get_node(&iter);
        if (link) {
            const struct node *node = caa_container_of(link, struct node, link);
            check_node(node, key);
            if (seed >> 56 == 0)
                usleep(3000); /* enough for the node to be replaced, and to be reused if it is freed too early */
            check_node(node, key);
            found = true;
        }
        rcu_read_unlock();
    }
    return NULL;
}

CASE(hash_table)
{
    pthread_t writers[WRITERS], lookers[READERS];
    nodes = make_cache(sizeof(struct node), 0, 0);
    must(table = cds_lfht_new(KEYS, KEYS, 0, CDS_LFHT_ACCOUNTING, NULL));
    for (uintptr_t i = 0; i < READERS; i++)
        must(!pthread_create(&lookers[i], NULL, looker, (void *)i));
    for (uintptr_t i = 0; i < WRITERS; i++)
        must(!pthread_create(&writers[i], NULL, writer, (void *)i));
    for (int i = 0; i < WRITERS; i++)
        pthread_join(writers[i], NULL);
    atomic_store(&stop, true);
    for (int i = 0; i < READERS; i++)
        pthread_join(lookers[i], NULL);
    struct cds_lfht_iter iter;
    struct node *node;
    rcu_read_lock();
    cds_lfht_for_each_entry(table, &iter, node, link)
    {
        must(!cds_lfht_del(table, &node->link));
        drop_node(node);
    }
    rcu_read_unlock();
    must(!cds_lfht_destroy(table, NULL));
    kvfree_rcu_barrier_on_cache(nodes);
    must(counter_sum(nodes->number, COUNT_rcu_recycle) > 0);
    check_empty(nodes);
}

/* ---- a barrier covers earlier frees, even if another thread holds their sheaf ---- */

static _Atomic uint32_t *freed; /* how often the block at each slice was freed */
static void (*real_free)(void *p);

static void recording_free(void *p)
{
    atomic_fetch_add(&freed[slice_of(p)], 1);
    real_free(p);
}

static void *free_and_wait(void *unused)
{
    for (int i = 0; i < 300; i++) {
        void *p = sheaf_malloc(100000);
        uint32_t before = atomic_load(&freed[slice_of(p)]);
        kfree_rcu(p);
        kvfree_rcu_barrier();
        must(atomic_load(&freed[slice_of(p)]) > before);
    }
    return unused;
}

static void *free_only(void *unused)
{
    while (!atomic_load(&stop))
        kfree_rcu(sheaf_malloc(40000));
    return unused;
}

CASE(barriers)
{
    pthread_t threads[4], others[2];
    sheaf_free(sheaf_malloc(1));
    must(freed = calloc(space.slice_count, sizeof(*freed)));
    real_free = hooks.rcu_free_large;
    hooks.rcu_free_large = recording_free;
    for (int i = 0; i < 2; i++)
        must(!pthread_create(&others[i], NULL, free_only, NULL));
    for (int i = 0; i < 4; i++)
        must(!pthread_create(&threads[i], NULL, free_and_wait, NULL));
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    atomic_store(&stop, true);
    for (int i = 0; i < 2; i++)
        pthread_join(others[i], NULL);
    kvfree_rcu_barrier();
    cache_trim_all(); /* also empties the slots' span caches of large blocks */
    must(stats_now().bytes == 0 && region_stats.large_slices == 0);
}

/* ---- signal handlers interrupt any step ---- */

static _Atomic int handled;

static void on_signal(int number)
{
    (void)number;
    void *object = kmem_cache_alloc(nodes, 0);
    if (object) {
        memset(object, POISON, kmem_cache_size(nodes));
        kfree_rcu_nolock(object);
    }
    kfree_rcu_nolock(sheaf_malloc(50000));
    atomic_fetch_add(&handled, 1);
}

CASE(signal_handler)
{
    nodes = make_cache(64, 13, 0);
    struct sigaction action = {.sa_handler = on_signal};
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    struct itimerspec often = {{0, 50000}, {0, 50000}}, never = {{0, 0}, {0, 0}};
    timer_t timer;
    must(!sigaction(SIGUSR1, &action, NULL) && !timer_create(CLOCK_MONOTONIC, &event, &timer));
    must(!timer_settime(timer, 0, &often, NULL));
    while (atomic_load(&handled) < 3000) {
        kmem_cache_free_rcu(nodes, kmem_cache_alloc(nodes, 0));
        kfree_rcu(sheaf_malloc(33000));
    }
    must(!timer_settime(timer, 0, &never, NULL));
    kvfree_rcu_barrier();
    must(stats_now().bytes == 0);
    check_empty(nodes);
}

/* ---- forks ---- */

static void *churn(void *unused)
{
    while (!atomic_load(&stop)) {
        rcu_read_lock();
        rcu_read_unlock();
        kmem_cache_free_rcu(nodes, take_poisoned(nodes));
        kfree_rcu(sheaf_malloc(40000));
    }
    return unused;
}

/* The child starts a thread of its own, which also frees the objects that waited when it was forked. */
static void in_child(void)
{
    alarm(CASE_SECONDS / 2);
    for (int i = 0; i < 100; i++)
        kmem_cache_free_rcu(nodes, take_poisoned(nodes));
    kvfree_rcu_barrier();
    must(stats_now().sheaves == 0 && rcu_objects(nodes) == 0);
    kmem_cache_free_rcu(nodes, take_poisoned(nodes));
    while (rcu_objects(nodes))
        usleep(1000);
    slab_check(&nodes->slab);
    _exit(0);
}

CASE(forks)
{
    pthread_t threads[2];
    nodes = make_cache(200, 0, 0);
    must(sheaf_rcu_handle_fork() == 0);
    for (int i = 0; i < 2; i++)
        must(!pthread_create(&threads[i], NULL, churn, NULL));
    for (int i = 0; i < 40; i++) {
        pid_t pid = fork();
        if (pid == 0)
            in_child();
        must_succeed(pid);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    check_empty(nodes);
}
