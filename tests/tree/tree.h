/*
 * An ordered map from 64-bit keys to 64-bit values: a B+ tree of fixed-size nodes that never change once they are
 * part of it. An update builds new nodes from the changed leaf up to the root, installs the new root, and frees
 * the old nodes.
 *
 * Before an update, tree_prepare() allocates the nodes of its worst case. If it fails, nothing has changed. The
 * update itself cannot fail, and none of its code checks whether an allocation succeeded.
 */
#ifndef SHEAF_TESTS_TREE_H
#define SHEAF_TESTS_TREE_H

#include "sheaf/kmem_cache.h"

#include <stddef.h>
#include <stdint.h>

#define TREE_FAN        15
#define TREE_HEIGHT_MAX 24

struct node {
    uint32_t level; /* 0: a leaf */
    uint32_t count;
    uint64_t keys[TREE_FAN];  /* ascending; in inner nodes the smallest key below the child */
    uint64_t words[TREE_FAN]; /* values, or children */
};

struct tree {
    struct kmem_cache *nodes;
    struct node *root; /* NULL: empty */
};

/* Returns the largest number of nodes that one update needs: two on each level, and a new root. */
unsigned tree_worst(const struct tree *tree);

/*
 * Makes sure that *sheaf, which may be NULL, holds nodes for one update. Returns false if there is no memory; then
 * nothing has changed.
 */
bool tree_prepare(struct tree *tree, gfp_t flags, struct slab_sheaf **sheaf);

/* Set the value of a key, or remove a key. The sheaf must have been prepared. */
void tree_set(struct tree *tree, struct slab_sheaf *sheaf, uint64_t key, uint64_t value);
void tree_erase(struct tree *tree, struct slab_sheaf *sheaf, uint64_t key);

bool tree_get(const struct tree *tree, uint64_t key, uint64_t *value);

/* Stores all pairs in order. Returns their number, or -1 if there are more than `most` or the tree is broken. */
long tree_list(const struct tree *tree, uint64_t *keys, uint64_t *values, size_t most);

/* Frees all nodes. */
void tree_clear(struct tree *tree);

#endif
