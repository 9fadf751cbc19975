/*
 * A random order in which new slabs hand out their objects: one permutation for each cache, and for each slab a
 * random place in it to start from (like the kernel's freelist randomization).
 *
 * Positions replace indices where a slab counts: its `mark` is the number of positions handed out, and an object
 * was handed out if its position is below the mark. Both directions are tables of `objects` entries in their own
 * mapping.
 */
#ifndef SHEAF_SLAB_SHUFFLE_H
#define SHEAF_SLAB_SHUFFLE_H

#include "platform/os/compiler.h"

struct shuffle {
    uint32_t objects;
    uint16_t table[]; /* the offset of the object at each place, in words of 8 bytes; then the place of each index */
};

/* A permutation for slabs of `objects` objects of `size` bytes; NULL when there is no memory. */
struct shuffle *shuffle_create(uint32_t objects, uint32_t size);
void shuffle_destroy(struct shuffle *shuffle);

/* A random place for a new slab to start from. */
uint32_t shuffle_start(const struct shuffle *shuffle);

/* The position of the object with this index in a slab that starts at place `start`. */
static inline uint32_t shuffle_position(const struct shuffle *shuffle, uint32_t start, uint32_t index)
{
    uint32_t place = shuffle->table[shuffle->objects + index];
    return place >= start ? place - start : place + shuffle->objects - start;
}

/*
 * Stores the objects at positions `from` to from + n - 1. It does so in two stretches, to keep the wrap-around out
 * of the inner loop.
 */
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
