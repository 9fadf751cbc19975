/* Units of the region, allocated as large blocks and as slabs. */
#ifndef SHEAF_TESTS_LAYER_UNITS_H
#define SHEAF_TESTS_LAYER_UNITS_H

#include "layer.h"
#include "region/region.h"

/* Whether the units of the last allocation read as zero. */
static bool zeroed;

static uint32_t block(uint32_t units)
{
    uint32_t unit = region_alloc(ARENA_LARGE, units, 1, &zeroed);
    must(unit != UNIT_NONE);
    return unit;
}

static uint32_t slab(uint32_t units)
{
    uint32_t unit = region_alloc_slab(0, units, &zeroed);
    must(unit != UNIT_NONE);
    return unit;
}

#endif
