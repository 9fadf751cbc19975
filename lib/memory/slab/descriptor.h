/*
 * Descriptors of slabs. They are cut from their own part of the address space, reused for slabs with descriptors
 * of the same size, and never returned to the system. Lock-free and safe in signal handlers.
 */
#ifndef SHEAF_SLAB_DESCRIPTOR_H
#define SHEAF_SLAB_DESCRIPTOR_H

#include "memory/slab/slab.h"

/*
 * A descriptor for a slab of `objects` objects, zeroed except for `reference` and `words`; NULL when there is no
 * memory.
 */
struct slab *descriptor_alloc(unsigned objects);
void descriptor_free(struct slab *slab);

static inline struct slab *descriptor_of(uint32_t reference)
{
    return (struct slab *)(void *)(space.slabs.start + (size_t)reference * 64);
}

/* The descriptor of the slab that a slice belongs to. */
static inline struct slab *descriptor_of_slice(uintptr_t slice)
{
    return descriptor_of(slice_at(slice)->slab);
}

/* Unmap the first descriptors that were never used; the conditions of space_slim(). */
void descriptor_slim(void);

#endif
