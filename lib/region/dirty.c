#include "region/dirty.h"
#include "region/space.h"

static uint64_t word_mask(uint32_t from, uint32_t to)
{
    uint64_t mask = ~0ull << (from % 64);
    return to % 64 ? mask & (~0ull >> (64 - to % 64)) : mask;
}

uint32_t dirty_change(uint32_t from, uint32_t to, bool set)
{
    uint32_t before = 0;
    while (from < to) {
        uint32_t stop = (from | 63) + 1 < to ? (from | 63) + 1 : to;
        uint64_t mask = word_mask(from, stop);
        uint64_t *word = &space.dirty[from / 64];
        before += (uint32_t)__builtin_popcountll(*word & mask);
        *word = set ? *word | mask : *word & ~mask;
        from = stop;
    }
    return before;
}

uint32_t dirty_count(uint32_t from, uint32_t to)
{
    uint32_t n = 0;
    while (from < to) {
        uint32_t stop = (from | 63) + 1 < to ? (from | 63) + 1 : to;
        n += (uint32_t)__builtin_popcountll(space.dirty[from / 64] & word_mask(from, stop));
        from = stop;
    }
    return n;
}
