#include "region/dirty.h"
#include "region/region.h"
#include "os/vm.h"

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

bool region_unit_clean(uint32_t unit)
{
    return !(space.dirty[unit / 64] >> (unit % 64) & 1);
}

uint32_t dirty_last(uint32_t unit, uint32_t length, uint64_t units)
{
    uint32_t from = unit + length;
    while (from > unit && units) {
        from--;
        units -= !region_unit_clean(from);
    }
    return from;
}

bool dirty_discard(uint32_t unit, uint32_t length)
{
    uint32_t end = unit + length;
    for (uint32_t from = unit; from < end;) {
        uint32_t to = from;
        while (to < end && !region_unit_clean(to))
            to++;
        if (to > from && !vm_discard(unit_address(from), (size_t)(to - from) << UNIT_SHIFT))
            return false;
        from = to + 1;
    }
    return true;
}
