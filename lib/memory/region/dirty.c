#include "memory/region/dirty.h"
#include "memory/region/arena.h"
#include "memory/region/region.h"

/* The word that holds the bits of 64 slices. */
static uint64_t *word_of(uint32_t slice)
{
    uint64_t *rest = (uint64_t *)(void *)space.dirty_table.start;
    return likely(slice < SLICES_FIRST) ? &space.dirty_first[slice / 64] : &rest[(slice - SLICES_FIRST) / 64];
}

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
        uint64_t *word = word_of(from);
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
        n += (uint32_t)__builtin_popcountll(*word_of(from) & word_mask(from, stop));
        from = stop;
    }
    return n;
}

bool region_slice_clean(uint32_t slice)
{
    return !(*word_of(slice) >> (slice % 64) & 1);
}

uint32_t dirty_last(uint32_t slice, uint32_t length, uint64_t slices)
{
    uint32_t from = slice + length;
    while (from > slice && slices) {
        from--;
        slices -= !region_slice_clean(from);
    }
    return from;
}

uint32_t dirty_end(uint32_t slice, uint32_t length)
{
    uint32_t end = slice + length;
    while (end > slice && region_slice_clean(end - 1))
        end--;
    return end;
}

static bool discard(uint32_t from, uint32_t to)
{
    return unlikely(vm_staged) ? arena_uncommit(from, to)
                               : vm_discard(slice_address(from), (size_t)(to - from) << SLICE_SHIFT);
}

bool dirty_discard(uint32_t slice, uint32_t length)
{
    uint32_t end = slice + length;
    for (uint32_t from = slice; from < end;) {
        uint32_t to = from;
        while (to < end && !region_slice_clean(to))
            to++;
        if (to > from && !discard(from, to))
            return false;
        from = to + 1;
    }
    return true;
}
