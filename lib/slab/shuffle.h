/*
 * The order in which a fresh slab hands out its objects, where that is to be random: one permutation for each cache,
 * and for each slab the place in it where it begins (as the kernel's freelist randomization does).
 *
 * Positions replace indices where a slab counts: its `mark` is the number of positions handed out, and an object was
 * handed out if its position is below. Both directions are tables of `objects` entries, in memory of their own.
 */
#ifndef SHEAF_SLAB_SHUFFLE_H
#define SHEAF_SLAB_SHUFFLE_H

#include "os/compiler.h"

struct shuffle {
    uint32_t objects;
    uint16_t table[]; /* offset of the object at each place, in units of 8 bytes; then the place of each index */
};

/* NULL: no memory. */
struct shuffle *shuffle_create(uint32_t objects, uint32_t size);
void shuffle_destroy(struct shuffle *shuffle);

/* Where a new slab begins. */
uint32_t shuffle_start(const struct shuffle *shuffle);

/* The position of an index in a slab that begins at `start`. */
static inline uint32_t shuffle_position(const struct shuffle *shuffle, uint32_t start, uint32_t index)
{
    uint32_t place = shuffle->table[shuffle->objects + index];
    return place >= start ? place - start : place + shuffle->objects - start;
}

/* The objects at positions `from` to from + n. In two stretches, so that the loop has no test for the end. */
static always_inline void shuffle_emit(const struct shuffle *shuffle, uint32_t start, uint32_t from, char *slab,
                                       void **into, uint32_t n)
{
    uint32_t place = start + from < shuffle->objects ? start + from : start + from - shuffle->objects;
    while (n) {
        uint32_t stretch = shuffle->objects - place < n ? shuffle->objects - place : n;
        const uint16_t *at = shuffle->table + place;
        for (uint32_t i = 0; i < stretch; i++)
            into[i] = slab + ((size_t)at[i] << 3);
        into += stretch;
        n -= stretch;
        place = 0;
    }
}

#endif
