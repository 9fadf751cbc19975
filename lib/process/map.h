/* What lies in the slices of the region, for display. */
#ifndef SHEAF_PROCESS_MAP_H
#define SHEAF_PROCESS_MAP_H

#include "sheaf/control.h"

#include <stdbool.h>
#include <stdint.h>

/* A walk over slices in ascending order. */
struct map_walk {
    uint32_t at;    /* the next slice */
    uint32_t first; /* the span that `at` lies in: [first, end); empty if it lies in none */
    uint32_t end;
    uint8_t kind; /* enum slice_kind of the span; slabs: of the descriptor below */
    uint16_t cache;
    uint32_t out;
};

/* `kind` is an enum sheaf_slice_kind; `cache`, the number of a cache, and `out`, objects out of the slab, are for
 * slabs. */
struct map_slice {
    uint8_t kind;
    bool first; /* of its span */
    uint16_t cache;
    uint32_t out;
};

/* Begin at a slice, which must be below region_end(). */
struct map_walk map_from(uint32_t slice);

/*
 * Describe the next slice, which must be below region_end(). Takes no lock: spans may change meanwhile, so a slice
 * may be described as it was a moment before, or as SHEAF_SLICE_OTHER. Any context.
 */
struct map_slice map_next(struct map_walk *walk);

#endif
