/*
 * The span cache of a slot: one free span of each length from 1 to SPAN_CACHE_LENGTHS slices, as the kernel keeps
 * pages for each CPU. A block of 40 KiB that is freed and allocated again costs half of what it costs with the
 * region's lock and tables.
 *
 * A span in a span cache is SLICE_CLOSED and counts as in use in the region; its dirty bits say nothing.
 */
#ifndef SHEAF_SLOT_SPAN_CACHE_H
#define SHEAF_SLOT_SPAN_CACHE_H

#include "cache/slot/slot.h"

/*
 * Whether slots keep spans: if that is allowed, and if at least one slot's span cache fits into the bytes that may
 * stay resident.
 */
extern hidden bool span_cache_on;
void span_cache_init(size_t keep_bytes, bool allowed);

/* Change the number of bytes that may stay resident. The caller holds no lock. */
void span_cache_keep(size_t bytes);

/* Returns a span of that length, as SLICE_LARGE and not zeroed; SLICE_NONE if the current slot has none. */
uint32_t span_cache_take(uint32_t slices);

/* Put a span that is SLICE_CLOSED. Returns false if the slot has one of that length, or keeps none of that length. */
bool span_cache_put(uint32_t slice);

/* Give all spans back to the region. The caller holds no lock. */
void span_cache_flush(void);

/* The slices and spans in all span caches, and the number of spans that were ever taken from them. */
struct span_cache_totals {
    uint64_t slices, spans, taken;
};
struct span_cache_totals span_cache_totals(void);

#endif
