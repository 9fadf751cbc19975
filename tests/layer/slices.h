/* Slices of the region, allocated as large blocks and as slabs. */
#ifndef SHEAF_TESTS_LAYER_SLICES_H
#define SHEAF_TESTS_LAYER_SLICES_H

#include "layer.h"
#include "memory/region/region.h"

/* Whether the slices of the last allocation read as zero. */
static bool zeroed;

static uint32_t block(uint32_t slices)
{
    uint32_t slice = region_alloc(ARENA_LARGE, slices, 1, &zeroed);
    must(slice != SLICE_NONE);
    return slice;
}

static uint32_t slab(uint32_t slices)
{
    uint32_t slice = region_alloc_slab(0, slices, &zeroed);
    must(slice != SLICE_NONE);
    return slice;
}

#endif
