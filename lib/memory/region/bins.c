#include "memory/region/bins.h"
#include "memory/space/space.h"

/* Spans examined in the bin of the wanted length, some of which may be too short. */
#define BINS_SCAN 8

static unsigned bin_of(uint32_t slices)
{
    if (slices < BINS_EXACT)
        return slices;
    unsigned shift = log2_floor(slices) - 3;
    unsigned bin = BINS_EXACT + (shift - 3) * 8 + ((slices >> shift) & 7);
    return bin < BINS ? bin : BINS - 1;
}

void bins_insert(struct bins *bins, uint32_t slice)
{
    struct slice *span = slice_at(slice);
    unsigned bin = bin_of(span->length);
    span->bin_prev = SLICE_NONE;
    span->bin_next = bins->head[bin] - 1;
    if (bins->head[bin])
        slice_at(span->bin_next)->bin_prev = slice;
    bins->head[bin] = slice + 1;
    bins->filled[bin / 64] |= 1ull << (bin % 64);
}

void bins_remove(struct bins *bins, uint32_t slice)
{
    struct slice *span = slice_at(slice);
    unsigned bin = bin_of(span->length);
    if (span->bin_next != SLICE_NONE)
        slice_at(span->bin_next)->bin_prev = span->bin_prev;
    if (span->bin_prev != SLICE_NONE) {
        slice_at(span->bin_prev)->bin_next = span->bin_next;
        return;
    }
    bins->head[bin] = span->bin_next + 1;
    if (!bins->head[bin])
        bins->filled[bin / 64] &= ~(1ull << (bin % 64));
}

static uint32_t scan(const struct bins *bins, unsigned bin, uint32_t slices, unsigned most)
{
    uint32_t slice = bins->head[bin] - 1;
    while (slice != SLICE_NONE && most--) {
        if (slice_at(slice)->length >= slices)
            return slice;
        slice = slice_at(slice)->bin_next;
    }
    return SLICE_NONE;
}

uint32_t bins_find(const struct bins *bins, uint32_t slices)
{
    unsigned bin = bin_of(slices);
    uint32_t slice = scan(bins, bin, slices, bin == BINS - 1 ? UINT32_MAX : BINS_SCAN);
    if (slice != SLICE_NONE)
        return slice;
    bin++;
    for (unsigned i = bin / 64; i < array_size(bins->filled); i++) {
        uint64_t filled = bins->filled[i];
        if (i == bin / 64)
            filled &= ~0ull << (bin % 64);
        if (!filled)
            continue;
        unsigned found = i * 64 + (unsigned)__builtin_ctzll(filled);
        return scan(bins, found, slices, found == BINS - 1 ? UINT32_MAX : 1);
    }
    return SLICE_NONE;
}
