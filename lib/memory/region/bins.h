/* The free spans of one arena by length: a bin for each length below 64 slices, eight for each doubling above. */
#ifndef SHEAF_REGION_BINS_H
#define SHEAF_REGION_BINS_H

#include "memory/space/slice.h"

#define BINS_EXACT 64
#define BINS       (BINS_EXACT + 8 * 20)

struct bins {
    uint32_t head[BINS]; /* one more than the slice, 0 for none, so that zeroed memory is an empty set */
    uint64_t filled[(BINS + 63) / 64];
};

void bins_insert(struct bins *bins, uint32_t slice);
void bins_remove(struct bins *bins, uint32_t slice);

/*
 * The most recently inserted span of at least `slices` in the smallest bin that has one; SLICE_NONE if none was
 * found.
 */
uint32_t bins_find(const struct bins *bins, uint32_t slices);

#endif
