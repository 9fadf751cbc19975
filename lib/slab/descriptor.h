/* Descriptors of slabs: cut from their own part of the space, kept by size for reuse, never given back. */
#ifndef SHEAF_SLAB_DESCRIPTOR_H
#define SHEAF_SLAB_DESCRIPTOR_H

#include "slab/slab.h"

/* Zeroed but for `reference` and `words`; NULL when there is no memory. Lock-free. */
struct slab *descriptor_alloc(unsigned objects);
void descriptor_free(struct slab *slab);

static inline struct slab *descriptor_of(uint32_t reference)
{
    return (struct slab *)(void *)(space.slabs.start + (size_t)reference * 64);
}

/* The descriptor of the slab that a unit belongs to. */
static inline struct slab *descriptor_of_unit(uintptr_t unit)
{
    return descriptor_of(unit_at(unit)->slab);
}

#endif
