#include "cache/slot/span_cache.h"
#include "memory/region/region.h"

/*
 * The word of a slot and length: in the low half one more than the span's slice, 0 for none; in the high half the
 * number of spans taken from here since the last flush, modulo 2^32, which guards the exchanges against ABA. The
 * thread that exchanges the span for 0 owns the span. So threads, signal handlers and migrations need no lock, and
 * the words are valid in the child of a fork.
 */
#define TAKEN_ONE (1ull << 32)

bool span_cache_on;
static bool span_cache_allowed;
static _Atomic uint64_t taken_before; /* spans taken before the last flush */

void span_cache_init(size_t keep_bytes, bool allowed)
{
    span_cache_allowed = allowed;
    span_cache_on = allowed && keep_bytes >= (SPAN_CACHE_LENGTHS + 1) * SPAN_CACHE_LENGTHS / 2 * SLICE_SIZE;
}

void span_cache_keep(size_t bytes)
{
    span_cache_init(bytes, span_cache_allowed);
    if (!span_cache_on)
        span_cache_flush();
}

uint32_t span_cache_take(uint32_t slices)
{
    if (!span_cache_on || slices > SPAN_CACHE_LENGTHS)
        return SLICE_NONE;
    _Atomic uint64_t *word = slot_span_cache(slot_counting(), slices);
    uint64_t seen = atomic_load_explicit(word, memory_order_relaxed);
    if (!(uint32_t)seen || !atomic_compare_exchange_strong_explicit(word, &seen, (seen >> 32 << 32) + TAKEN_ONE,
                                                                    memory_order_acquire, memory_order_relaxed))
        return SLICE_NONE;
    uint32_t slice = (uint32_t)seen - 1;
    write_once(slice_at(slice)->kind, SLICE_LARGE);
    return slice;
}

bool span_cache_put(uint32_t slice)
{
    uint32_t slices = slice_at(slice)->length;
    if (!span_cache_on || slices > SPAN_CACHE_LENGTHS)
        return false;
    _Atomic uint64_t *word = slot_span_cache(slot_counting(), slices);
    uint64_t seen = atomic_load_explicit(word, memory_order_relaxed);
    return !(uint32_t)seen && atomic_compare_exchange_strong_explicit(word, &seen, seen | (slice + 1),
                                                                      memory_order_release, memory_order_relaxed);
}

void span_cache_flush(void)
{
    for (unsigned slot = 0; slot < read_once(slot_top); slot++)
        for (uint32_t slices = 1; slices <= SPAN_CACHE_LENGTHS && slot_writable(slot); slices++) {
            _Atomic uint64_t *word = slot_span_cache(slot, slices);
            if (!atomic_load_explicit(word, memory_order_relaxed))
                continue;
            uint64_t was = atomic_exchange_explicit(word, 0, memory_order_acquire);
            atomic_fetch_add_explicit(&taken_before, was >> 32, memory_order_relaxed);
            if ((uint32_t)was)
                region_free((uint32_t)was - 1);
        }
}

struct span_cache_totals span_cache_totals(void)
{
    struct span_cache_totals totals = {.taken = atomic_load_explicit(&taken_before, memory_order_relaxed)};
    for (unsigned slot = 0; slot < read_once(slot_top); slot++)
        for (uint32_t slices = 1; slices <= SPAN_CACHE_LENGTHS && slot_writable(slot); slices++) {
            uint64_t seen = atomic_load_explicit(slot_span_cache(slot, slices), memory_order_relaxed);
            totals.taken += seen >> 32;
            if (!(uint32_t)seen)
                continue;
            totals.slices += slices;
            totals.spans++;
        }
    return totals;
}
