#include "slot/stash.h"
#include "region/region.h"

/*
 * The word of a slot and length: in the low half one more than the run's unit, 0 for none; in the high half the
 * number of runs taken from here since the last flush, modulo 2^32, which guards the exchanges against ABA. The
 * thread that exchanges the run for 0 owns the run. So threads, signal handlers and migrations need no lock, and the
 * words are valid in the child of a fork.
 */
#define TAKEN_ONE (1ull << 32)

bool stash_on;
static bool stash_allowed;
static _Atomic uint64_t taken_before; /* runs taken before the last flush */

void stash_init(size_t keep_bytes, bool allowed)
{
    stash_allowed = allowed;
    stash_on = allowed && keep_bytes >= (STASH_LENGTHS + 1) * STASH_LENGTHS / 2 * UNIT_SIZE;
}

void stash_keep(size_t bytes)
{
    stash_init(bytes, stash_allowed);
    if (!stash_on)
        stash_flush();
}

uint32_t stash_take(uint32_t units)
{
    if (!stash_on || units > STASH_LENGTHS)
        return UNIT_NONE;
    _Atomic uint64_t *word = slot_stash(slot_counting(), units);
    uint64_t seen = atomic_load_explicit(word, memory_order_relaxed);
    if (!(uint32_t)seen || !atomic_compare_exchange_strong_explicit(word, &seen, (seen >> 32 << 32) + TAKEN_ONE,
                                                                    memory_order_acquire, memory_order_relaxed))
        return UNIT_NONE;
    uint32_t unit = (uint32_t)seen - 1;
    write_once(unit_at(unit)->kind, UNIT_LARGE);
    return unit;
}

bool stash_put(uint32_t unit)
{
    uint32_t units = unit_at(unit)->length;
    if (!stash_on || units > STASH_LENGTHS)
        return false;
    _Atomic uint64_t *word = slot_stash(slot_counting(), units);
    uint64_t seen = atomic_load_explicit(word, memory_order_relaxed);
    return !(uint32_t)seen && atomic_compare_exchange_strong_explicit(word, &seen, seen | (unit + 1),
                                                                      memory_order_release, memory_order_relaxed);
}

void stash_flush(void)
{
    for (unsigned slot = 0; slot < read_once(slot_top); slot++)
        for (uint32_t units = 1; units <= STASH_LENGTHS && slot_writable(slot); units++) {
            _Atomic uint64_t *word = slot_stash(slot, units);
            if (!atomic_load_explicit(word, memory_order_relaxed))
                continue;
            uint64_t was = atomic_exchange_explicit(word, 0, memory_order_acquire);
            atomic_fetch_add_explicit(&taken_before, was >> 32, memory_order_relaxed);
            if ((uint32_t)was)
                region_free((uint32_t)was - 1);
        }
}

struct stash_totals stash_totals(void)
{
    struct stash_totals totals = {.taken = atomic_load_explicit(&taken_before, memory_order_relaxed)};
    for (unsigned slot = 0; slot < read_once(slot_top); slot++)
        for (uint32_t units = 1; units <= STASH_LENGTHS && slot_writable(slot); units++) {
            uint64_t seen = atomic_load_explicit(slot_stash(slot, units), memory_order_relaxed);
            totals.taken += seen >> 32;
            if (!(uint32_t)seen)
                continue;
            totals.units += units;
            totals.runs++;
        }
    return totals;
}
