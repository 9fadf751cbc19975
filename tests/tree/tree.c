#include "tree.h"

#include <string.h>

#define TREE_MIN ((TREE_FAN + 1) / 2) /* entries of a node that is not the root */

/* The contents of a new node, or of two. */
struct entries {
    unsigned count;
    uint64_t keys[2 * TREE_FAN];
    uint64_t words[2 * TREE_FAN];
};

struct update {
    struct tree *tree;
    struct slab_sheaf *sheaf;
    uint64_t key, value;
    bool erase;
    unsigned retired;
    struct node *old[2 * TREE_HEIGHT_MAX];
};

static struct node *child(uint64_t word)
{
    return (struct node *)(uintptr_t)word;
}

static void insert_at(struct entries *e, unsigned at, uint64_t key, uint64_t word)
{
    memmove(e->keys + at + 1, e->keys + at, (e->count - at) * sizeof(e->keys[0]));
    memmove(e->words + at + 1, e->words + at, (e->count - at) * sizeof(e->words[0]));
    e->keys[at] = key;
    e->words[at] = word;
    e->count++;
}

static void remove_at(struct entries *e, unsigned at)
{
    e->count--;
    memmove(e->keys + at, e->keys + at + 1, (e->count - at) * sizeof(e->keys[0]));
    memmove(e->words + at, e->words + at + 1, (e->count - at) * sizeof(e->words[0]));
}

static void take_over(struct update *u, struct entries *e, struct node *node)
{
    memcpy(e->keys + e->count, node->keys, node->count * sizeof(node->keys[0]));
    memcpy(e->words + e->count, node->words, node->count * sizeof(node->words[0]));
    e->count += node->count;
    u->old[u->retired++] = node;
}

static struct node *build(struct update *u, const struct entries *e, unsigned from, unsigned to, unsigned level)
{
    struct node *node = kmem_cache_alloc_from_sheaf(u->tree->nodes, 0, u->sheaf);
    node->level = level;
    node->count = to - from;
    memcpy(node->keys, e->keys + from, node->count * sizeof(node->keys[0]));
    memcpy(node->words, e->words + from, node->count * sizeof(node->words[0]));
    return node;
}

/* Builds one node, or two if the entries do not fit into one, and inserts them into `into` at `at`. */
static void hang(struct update *u, const struct entries *e, unsigned level, struct entries *into, unsigned at)
{
    unsigned half = e->count > TREE_FAN ? e->count / 2 : e->count;
    insert_at(into, at, e->keys[0], (uintptr_t)build(u, e, 0, half, level));
    if (half < e->count)
        insert_at(into, at + 1, e->keys[half], (uintptr_t)build(u, e, half, e->count, level));
}

static void change_leaf(const struct update *u, struct entries *e)
{
    unsigned at = 0;
    while (at < e->count && e->keys[at] < u->key)
        at++;
    bool there = at < e->count && e->keys[at] == u->key;
    if (u->erase && there)
        remove_at(e, at);
    else if (!u->erase && there)
        e->words[at] = u->value;
    else if (!u->erase)
        insert_at(e, at, u->key, u->value);
}

/* Computes the entries of `node` after the update. Notes it and the replaced nodes below it as old. */
static void change(struct update *u, struct node *node, struct entries *e)
{
    e->count = 0;
    take_over(u, e, node);
    if (!node->level) {
        change_leaf(u, e);
        return;
    }
    unsigned at = 0;
    while (at + 1 < e->count && e->keys[at + 1] <= u->key)
        at++;
    struct entries below;
    change(u, child(e->words[at]), &below);
    remove_at(e, at);
    if (below.count < TREE_MIN &&
        e->count) { /* merges it with its right neighbour, or with the left one if it is the last */
        struct entries both = {.count = 0};
        bool last = at == e->count;
        at -= last;
        if (last)
            take_over(u, &both, child(e->words[at]));
        memcpy(both.keys + both.count, below.keys, below.count * sizeof(below.keys[0]));
        memcpy(both.words + both.count, below.words, below.count * sizeof(below.words[0]));
        both.count += below.count;
        if (!last)
            take_over(u, &both, child(e->words[at]));
        remove_at(e, at);
        below = both;
    }
    if (below.count)
        hang(u, &below, node->level - 1, e, at);
}

static void run(struct update *u)
{
    struct entries e = {.count = 0}, top = {.count = 0};
    unsigned level = 0;
    if (u->tree->root) {
        level = u->tree->root->level;
        change(u, u->tree->root, &e);
    } else {
        change_leaf(u, &e);
    }
    if (level && e.count == 1) { /* a root with one child is replaced by the child */
        u->tree->root = child(e.words[0]);
    } else if (!e.count) {
        u->tree->root = NULL;
    } else {
        hang(u, &e, level, &top, 0);
        u->tree->root = top.count == 1 ? child(top.words[0]) : build(u, &top, 0, 2, level + 1);
    }
    for (unsigned i = 0; i < u->retired; i++)
        kmem_cache_free(u->tree->nodes, u->old[i]);
}

unsigned tree_worst(const struct tree *tree)
{
    return tree->root ? 2 * (tree->root->level + 1) + 1 : 1;
}

bool tree_prepare(struct tree *tree, gfp_t flags, struct slab_sheaf **sheaf)
{
    unsigned worst = tree_worst(tree);
    if (*sheaf)
        return kmem_cache_refill_sheaf(tree->nodes, flags, sheaf, worst) == 0;
    *sheaf = kmem_cache_prefill_sheaf(tree->nodes, flags, worst);
    return *sheaf != NULL;
}

void tree_set(struct tree *tree, struct slab_sheaf *sheaf, uint64_t key, uint64_t value)
{
    struct update u = {.tree = tree, .sheaf = sheaf, .key = key, .value = value};
    run(&u);
}

void tree_erase(struct tree *tree, struct slab_sheaf *sheaf, uint64_t key)
{
    struct update u = {.tree = tree, .sheaf = sheaf, .key = key, .erase = true};
    run(&u);
}

bool tree_get(const struct tree *tree, uint64_t key, uint64_t *value)
{
    const struct node *node = tree->root;
    if (!node)
        return false;
    for (;;) {
        unsigned at = 0;
        while (at + 1 < node->count && node->keys[at + 1] <= key)
            at++;
        if (node->level) {
            node = child(node->words[at]);
            continue;
        }
        *value = node->words[at];
        return node->keys[at] == key;
    }
}

static long list_below(const struct node *node, uint64_t *keys, uint64_t *values, long n, size_t most)
{
    for (unsigned i = 0; i < node->count && n >= 0; i++) {
        if (node->level) {
            const struct node *below = child(node->words[i]);
            bool good = below->level == node->level - 1 && below->keys[0] == node->keys[i] &&
                        below->count >= TREE_MIN && below->count <= TREE_FAN;
            n = good ? list_below(below, keys, values, n, most) : -1;
            continue;
        }
        if ((size_t)n == most || (n && keys[n - 1] >= node->keys[i]))
            return -1;
        keys[n] = node->keys[i];
        values[n++] = node->words[i];
    }
    return n;
}

long tree_list(const struct tree *tree, uint64_t *keys, uint64_t *values, size_t most)
{
    return tree->root ? list_below(tree->root, keys, values, 0, most) : 0;
}

static void clear_below(struct tree *tree, struct node *node)
{
    for (unsigned i = 0; node->level && i < node->count; i++)
        clear_below(tree, child(node->words[i]));
    kmem_cache_free(tree->nodes, node);
}

void tree_clear(struct tree *tree)
{
    if (tree->root)
        clear_below(tree, tree->root);
    tree->root = NULL;
}
