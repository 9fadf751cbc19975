/*
 * An ordered map from 64-bit keys to 64-bit values: a B+ tree of fixed-size nodes that are never changed once they
 * hang in it. An update builds new ones from the changed leaf up to the root, puts the new root in place, and frees
 * the old ones.
 *
 * An update asks for the nodes of its worst case first: tree_prepare() can fail, and then nothing has happened. The
 * update itself has no way to fail, and none of its code asks whether an allocation succeeded.
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

/* The most nodes that one update takes: two on each level, and a new root. */
unsigned tree_worst(const struct tree *tree);

/* See that *sheaf, NULL at first, has nodes for one update. False: no memory, and all is as it was. */
bool tree_prepare(struct tree *tree, gfp_t flags, struct slab_sheaf **sheaf);

/* Set the value of a key, or take the key out; the sheaf has been prepared. */
void tree_set(struct tree *tree, struct slab_sheaf *sheaf, uint64_t key, uint64_t value);
void tree_erase(struct tree *tree, struct slab_sheaf *sheaf, uint64_t key);

bool tree_get(const struct tree *tree, uint64_t key, uint64_t *value);

/* All pairs in order; at most `most` of them. The number, or -1 when the tree is not well-formed. */
long tree_list(const struct tree *tree, uint64_t *keys, uint64_t *values, size_t most);

/* Free all nodes. */
void tree_clear(struct tree *tree);

#endif
