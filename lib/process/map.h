/* What lies in the units of the region, for display. */
#ifndef SHEAF_PROCESS_MAP_H
#define SHEAF_PROCESS_MAP_H

#include "sheaf/control.h"

#include <stdbool.h>
#include <stdint.h>

/* A walk over units in ascending order. */
struct map_walk {
    uint32_t at;    /* the next unit */
    uint32_t first; /* the run that `at` lies in: [first, end); empty if it lies in none */
    uint32_t end;
    uint8_t kind; /* enum unit_kind of the run; slabs: of the descriptor below */
    uint16_t cache;
    uint32_t out;
};

/* `kind` is an enum sheaf_unit_kind; `cache`, the number of a cache, and `out`, objects out of the slab, are for
 * slabs. */
struct map_unit {
    uint8_t kind;
    bool first; /* of its run */
    uint16_t cache;
    uint32_t out;
};

/* Begin at a unit, which must be below region_end(). */
struct map_walk map_from(uint32_t unit);

/*
 * Describe the next unit, which must be below region_end(). Takes no lock: runs may change meanwhile, so a unit may
 * be described as it was a moment before, or as SHEAF_UNIT_OTHER. Any context.
 */
struct map_unit map_next(struct map_walk *walk);

#endif
