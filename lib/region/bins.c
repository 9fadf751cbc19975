#include "region/bins.h"
#include "space/space.h"

/* Runs examined in the bin of the wanted length, some of which may be too short. */
#define BINS_LOOK 8

static unsigned bin_of(uint32_t units)
{
    if (units < BINS_EXACT)
        return units;
    unsigned shift = log2_floor(units) - 3;
    unsigned bin = BINS_EXACT + (shift - 3) * 8 + ((units >> shift) & 7);
    return bin < BINS ? bin : BINS - 1;
}

void bins_insert(struct bins *bins, uint32_t unit)
{
    struct unit *run = unit_at(unit);
    unsigned bin = bin_of(run->length);
    run->bin_prev = UNIT_NONE;
    run->bin_next = bins->head[bin] - 1;
    if (bins->head[bin])
        unit_at(run->bin_next)->bin_prev = unit;
    bins->head[bin] = unit + 1;
    bins->filled[bin / 64] |= 1ull << (bin % 64);
}

void bins_remove(struct bins *bins, uint32_t unit)
{
    struct unit *run = unit_at(unit);
    unsigned bin = bin_of(run->length);
    if (run->bin_next != UNIT_NONE)
        unit_at(run->bin_next)->bin_prev = run->bin_prev;
    if (run->bin_prev != UNIT_NONE) {
        unit_at(run->bin_prev)->bin_next = run->bin_next;
        return;
    }
    bins->head[bin] = run->bin_next + 1;
    if (!bins->head[bin])
        bins->filled[bin / 64] &= ~(1ull << (bin % 64));
}

static uint32_t look(const struct bins *bins, unsigned bin, uint32_t units, unsigned most)
{
    uint32_t unit = bins->head[bin] - 1;
    while (unit != UNIT_NONE && most--) {
        if (unit_at(unit)->length >= units)
            return unit;
        unit = unit_at(unit)->bin_next;
    }
    return UNIT_NONE;
}

uint32_t bins_find(const struct bins *bins, uint32_t units)
{
    unsigned bin = bin_of(units);
    uint32_t unit = look(bins, bin, units, bin == BINS - 1 ? UINT32_MAX : BINS_LOOK);
    if (unit != UNIT_NONE)
        return unit;
    bin++;
    for (unsigned i = bin / 64; i < array_size(bins->filled); i++) {
        uint64_t filled = bins->filled[i];
        if (i == bin / 64)
            filled &= ~0ull << (bin % 64);
        if (!filled)
            continue;
        unsigned found = i * 64 + (unsigned)__builtin_ctzll(filled);
        return look(bins, found, units, found == BINS - 1 ? UINT32_MAX : 1);
    }
    return UNIT_NONE;
}
