/* Blocks of three kinds, all pages of which are written. The n-th block of a kind has the same size in every test. */
#ifndef BENCH_REST_BLOCKS_H
#define BENCH_REST_BLOCKS_H

#include <stddef.h>
#include <stdint.h>

enum kind {
    SMALL, /* 64 to 1563 bytes */
    MIXED, /* 16 bytes to 64 KiB; all doublings are equally likely */
    LARGE, /* 64 KiB to 4 MiB; all doublings are equally likely */
};

struct blocks {
    enum kind kind;
    size_t first; /* number of the first block, which determines all sizes */
    size_t count;
    void **places; /* one place for each block */
};

/* The number of blocks, from the first of the kind, that take at least `bytes`. */
size_t blocks_for(enum kind kind, uint64_t bytes);

/* The sum of the sizes. */
uint64_t blocks_bytes(const struct blocks *blocks);

/* blocks_fill() allocates the blocks in order; blocks_empty() frees them in the order of their places. */
void blocks_fill(const struct blocks *blocks);
void blocks_empty(const struct blocks *blocks);

/* Shuffles the places, so that the next blocks_empty() frees in random order. */
void blocks_shuffle(const struct blocks *blocks);

#endif
