/* Blocks of three kinds, whose pages are all touched. The n-th block of a kind has the same size in every test. */
#ifndef BENCH_REST_BLOCKS_H
#define BENCH_REST_BLOCKS_H

#include <stddef.h>
#include <stdint.h>

enum kind {
    SMALL, /* 64 to 1563 bytes */
    MIXED, /* 16 bytes to 64 KiB, each doubling as likely as the others */
    LARGE, /* 64 KiB to 4 MiB, likewise */
};

struct blocks {
    enum kind kind;
    size_t first; /* number of the first block, which says what size it has */
    size_t count;
    void **places; /* one for each */
};

/* How many blocks make up `bytes`. */
size_t blocks_for(enum kind kind, uint64_t bytes);

/* Their sizes added up. */
uint64_t blocks_bytes(const struct blocks *blocks);

/* Allocate them in order, and free them in the order of their places. */
void blocks_fill(const struct blocks *blocks);
void blocks_empty(const struct blocks *blocks);

/* Exchange the places at random: the next blocks_empty() frees in random order. */
void blocks_shuffle(const struct blocks *blocks);

#endif
