/*
 * The tree without memory: prepared updates succeed while ordinary allocation fails, and the contents equal those
 * of a sorted array. Each case first limits the process's address space or data, then allocates all memory that is
 * left, and frees only as many nodes as an update needs for its preparation.
 */
#include "../cases.h"
#include "../unit/probe.h"
#include "tree.h"

#include <pthread.h>
#include <sys/resource.h>

#define KEYS 4096

/* ---- the sorted array ---- */

struct array {
    size_t count;
    uint64_t keys[KEYS], values[KEYS];
};

static size_t array_find(const struct array *a, uint64_t key)
{
    size_t low = 0, high = a->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (a->keys[middle] < key)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool array_has(const struct array *a, uint64_t key)
{
    size_t at = array_find(a, key);
    return at < a->count && a->keys[at] == key;
}

static void array_set(struct array *a, uint64_t key, uint64_t value)
{
    size_t at = array_find(a, key);
    if (!array_has(a, key)) {
        memmove(a->keys + at + 1, a->keys + at, (a->count - at) * sizeof(a->keys[0]));
        memmove(a->values + at + 1, a->values + at, (a->count - at) * sizeof(a->values[0]));
        a->count++;
    }
    a->keys[at] = key;
    a->values[at] = value;
}

static void array_erase(struct array *a, uint64_t key)
{
    size_t at = array_find(a, key);
    if (!array_has(a, key))
        return;
    a->count--;
    memmove(a->keys + at, a->keys + at + 1, (a->count - at) * sizeof(a->keys[0]));
    memmove(a->values + at, a->values + at + 1, (a->count - at) * sizeof(a->values[0]));
}

/* ---- a tree with its array ---- */

struct pair {
    struct tree tree;
    struct array array;
    uint64_t random;
};

static uint64_t next_random(struct pair *p)
{
    p->random = p->random * 6364136223846793005ull + 1442695040888963407ull;
    return p->random >> 33;
}

static void compare(const struct pair *p)
{
    static _Thread_local uint64_t keys[KEYS], values[KEYS];
    uint64_t value;
    must(tree_list(&p->tree, keys, values, KEYS) == (long)p->array.count);
    must(!memcmp(keys, p->array.keys, p->array.count * sizeof(keys[0])));
    must(!memcmp(values, p->array.values, p->array.count * sizeof(values[0])));
    for (uint64_t key = 0; key < KEYS; key += 37)
        must(tree_get(&p->tree, key, &value) == array_has(&p->array, key));
}

/* Makes one update of the tree and of the array: with `grow` mostly insertions, otherwise mostly removals. */
static void update(struct pair *p, struct slab_sheaf *sheaf, bool grow)
{
    uint64_t key = next_random(p) % KEYS, value = next_random(p);
    if ((next_random(p) % 8 != 0) == grow) {
        tree_set(&p->tree, sheaf, key, value);
        array_set(&p->array, key, value);
    } else {
        tree_erase(&p->tree, sheaf, key);
        array_erase(&p->array, key);
    }
}

static struct pair the_pair;

static struct kmem_cache *node_cache(unsigned capacity)
{
    struct kmem_cache_args args = {.sheaf_capacity = capacity};
    struct kmem_cache *nodes = kmem_cache_create("node", sizeof(struct node), &args, 0);
    must(nodes);
    return nodes;
}

/* Makes 4000 updates while there is memory, so that the tree has at least three levels. */
static void grow_pair(struct pair *p)
{
    struct slab_sheaf *sheaf = NULL;
    for (int i = 0; i < 4000; i++) {
        must(tree_prepare(&p->tree, 0, &sheaf));
        update(p, sheaf, true);
    }
    kmem_cache_return_sheaf(p->tree.nodes, 0, sheaf);
    compare(p);
    must(p->tree.root->level >= 2);
}

/* ---- the limit, and ballast that uses up all memory ---- */

static void limit(int which, size_t bytes)
{
    struct rlimit to = {bytes, bytes};
    must(!setrlimit(which, &to));
}

static void limit_space(void)
{
    limit(RLIMIT_AS, 64ul << 20);
}

static void limit_data(void)
{
    limit(RLIMIT_DATA, 24ul << 20);
}

/* Objects that are linked through their first word. */
struct ballast {
    struct kmem_cache *nodes;
    void **top;
    size_t count;
};

/* Allocates until ordinary allocation fails on this CPU. */
static void take_all(struct ballast *b)
{
    void **object;
    while ((object = kmem_cache_alloc(b->nodes, GFP_KERNEL))) {
        *object = b->top;
        b->top = object;
        b->count++;
    }
    must(errno == ENOMEM);
}

/* Also allocates objects that are in the sheaves of other CPUs where this thread has run. */
static void take_everything(struct ballast *b)
{
    size_t before;
    do {
        kmem_cache_shrink(b->nodes);
        before = b->count;
        take_all(b);
    } while (b->count > before);
}

static void let_go(struct ballast *b, unsigned n)
{
    while (n--) {
        void **object = b->top;
        must(object);
        b->top = *object;
        b->count--;
        kmem_cache_free(b->nodes, object);
    }
}

static struct pair *begin(struct kmem_cache *nodes, struct ballast *b)
{
    *b = (struct ballast){.nodes = nodes};
    the_pair.tree.nodes = nodes;
    the_pair.random = 1;
    grow_pair(&the_pair);
    return &the_pair;
}

static void finish(struct pair *p, struct ballast *b)
{
    compare(p);
    probe_check(p->tree.nodes);
    let_go(b, (unsigned)b->count);
    tree_clear(&p->tree);
    must(kmem_cache_destroy(p->tree.nodes) == 0);
}

/* ---- cases ---- */

/* For each update: frees the nodes of the worst case, prefills them, allocates all others, updates, returns. */
static void starved(struct kmem_cache *nodes, unsigned updates)
{
    struct ballast ballast;
    struct pair *p = begin(nodes, &ballast);
    take_everything(&ballast);
    for (unsigned i = 0; i < updates; i++) {
        struct slab_sheaf *sheaf = NULL;
        if (i % 100 == 0) {
            take_everything(&ballast);
            must(!tree_prepare(&p->tree, 0, &sheaf) && !sheaf);
        }
        let_go(&ballast, tree_worst(&p->tree));
        must(tree_prepare(&p->tree, 0, &sheaf));
        take_all(&ballast);
        update(p, sheaf, i / 3000 % 2);
        kmem_cache_return_sheaf(nodes, 0, sheaf);
        take_all(&ballast);
        if (i % 500 == 0)
            compare(p);
    }
    finish(p, &ballast);
}

CASE(limited_address_space)
{
    limit_space();
    starved(node_cache(0), 12000);
}

CASE(limited_data)
{
    limit_data();
    starved(node_cache(0), 12000);
}

/* The worst case of a tree with several levels exceeds a capacity of 3, so every prefill is oversize. */
CASE(oversize_sheaves)
{
    limit_space();
    starved(node_cache(3), 6000);
}

CASE(cache_without_sheaves)
{
    limit_space();
    struct kmem_cache *nodes = node_cache(0);
    probe_set_capacity(nodes, 0);
    starved(nodes, 6000);
}

/* One sheaf serves all updates. If its refill fails, the tree and the sheaf are unchanged. */
CASE(one_refilled_sheaf)
{
    limit_space();
    struct kmem_cache *nodes = node_cache(32);
    struct ballast ballast;
    struct pair *p = begin(nodes, &ballast);
    struct slab_sheaf *sheaf = NULL;
    must(tree_prepare(&p->tree, 0, &sheaf));
    take_all(&ballast);
    unsigned refused = 0;
    for (unsigned i = 0; i < 12000; i++) {
        unsigned left = kmem_cache_sheaf_size(sheaf);
        const struct node *root = p->tree.root;
        while (!tree_prepare(&p->tree, 0, &sheaf)) {
            must(kmem_cache_sheaf_size(sheaf) == left && p->tree.root == root);
            refused++;
            let_go(&ballast, 1);
        }
        must(kmem_cache_sheaf_size(sheaf) >= tree_worst(&p->tree));
        take_all(&ballast);
        update(p, sheaf, i / 3000 % 2);
        take_all(&ballast);
        if (i % 500 == 0)
            compare(p);
    }
    must(refused > 1000);
    kmem_cache_return_sheaf(nodes, 0, sheaf);
    finish(p, &ballast);
}

/* With no memory left, updates take nodes from the standing reserve, and the nodes that they free refill it. */
CASE(standing_reserve)
{
    limit_space();
    struct kmem_cache *nodes = node_cache(32);
    struct ballast ballast;
    struct pair *p = begin(nodes, &ballast);
    unsigned worst = tree_worst(&p->tree);
    must(!kmem_cache_reserve(nodes, worst));
    take_everything(&ballast);
    for (unsigned i = 0; i < 5000; i++) {
        struct slab_sheaf *sheaf = NULL;
        must(!kmem_cache_alloc(nodes, GFP_KERNEL) && errno == ENOMEM);
        must(!tree_prepare(&p->tree, 0, &sheaf));
        must(tree_prepare(&p->tree, __GFP_MEMALLOC, &sheaf));
        /* Replaces the value of an existing key, which frees as many nodes as it allocates. */
        uint64_t key = p->array.keys[next_random(p) % p->array.count], value = next_random(p);
        tree_set(&p->tree, sheaf, key, value);
        array_set(&p->array, key, value);
        kmem_cache_return_sheaf(nodes, 0, sheaf);
        struct probe_census census;
        probe_take_census(nodes, &census);
        must(census.in_reserve == worst);
    }
    finish(p, &ballast);
}

CASE(fork_with_prepared_sheaf)
{
    limit_space();
    struct kmem_cache *nodes = node_cache(0);
    struct ballast ballast;
    struct pair *p = begin(nodes, &ballast);
    struct slab_sheaf *sheaf = NULL;
    must(tree_prepare(&p->tree, 0, &sheaf));
    take_all(&ballast);
    pid_t pid = fork();
    must(pid >= 0);
    p->random += !pid;
    for (unsigned i = 0; i < 500; i++) { /* parent and child each use their own copy of the sheaf */
        take_all(&ballast);
        update(p, sheaf, i % 2);
        kmem_cache_return_sheaf(nodes, 0, sheaf);
        sheaf = NULL;
        compare(p);
        let_go(&ballast, tree_worst(&p->tree));
        must(tree_prepare(&p->tree, 0, &sheaf));
        take_all(&ballast);
    }
    kmem_cache_return_sheaf(nodes, 0, sheaf);
    finish(p, &ballast);
    if (!pid)
        _exit(0);
    must_succeed(pid);
}

/* ---- threads ---- */

enum { WRITERS = 3, EACH = 4000 };
static struct pair pairs[WRITERS];
static _Atomic unsigned refusals, writers_left;
static _Atomic bool nothing_left;

static void *writer(void *argument)
{
    struct pair *p = argument;
    struct slab_sheaf *sheaf = NULL;
    while (!nothing_left)
        usleep(50);
    for (unsigned done = 0; done < EACH;) {
        if (!tree_prepare(&p->tree, 0, &sheaf)) {
            refusals++;
            usleep(50);
            continue;
        }
        update(p, sheaf, done / 1000 % 2);
        if (++done % 16 == 0) {
            kmem_cache_return_sheaf(p->tree.nodes, 0, sheaf);
            sheaf = NULL;
        }
        if (done % 500 == 0)
            compare(p);
    }
    kmem_cache_return_sheaf(p->tree.nodes, 0, sheaf);
    compare(p);
    writers_left--;
    return NULL;
}

/* Writers share memory that the main thread repeatedly allocates completely and frees in parts. */
CASE(threads_share_memory)
{
    limit_space();
    struct kmem_cache *nodes = node_cache(0);
    struct ballast ballast = {.nodes = nodes};
    pthread_t threads[WRITERS];
    writers_left = WRITERS;
    for (int i = 0; i < WRITERS; i++) {
        pairs[i].tree.nodes = nodes;
        pairs[i].random = (uint64_t)i + 1;
    }
    for (int i = 0; i < WRITERS; i++) /* before the memory is used up, because stacks count towards the limit */
        must(!pthread_create(&threads[i], NULL, writer, &pairs[i]));
    take_everything(&ballast);
    nothing_left = true;
    while (refusals < WRITERS) /* no memory is left, so their prefills must fail */
        usleep(200);
    while (writers_left) {
        take_all(&ballast);
        usleep(200);
        let_go(&ballast, ballast.count < 200 ? (unsigned)ballast.count : 200);
        usleep(200);
    }
    for (int i = 0; i < WRITERS; i++)
        must(!pthread_join(threads[i], NULL));
    probe_check(nodes);
    for (int i = 1; i < WRITERS; i++)
        tree_clear(&pairs[i].tree);
    finish(&pairs[0], &ballast);
}
