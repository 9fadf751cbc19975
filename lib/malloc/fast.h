/*
 * The fast paths, to be inlined into malloc() and free(). Their budget (x86-64): malloc 24 instructions, one table
 * look-up for the class; free 22, two of them to refuse the slot's two latest frees. No atomic, no lock, no access to
 * the object or its slab.
 */
#ifndef SHEAF_MALLOC_FAST_H
#define SHEAF_MALLOC_FAST_H

#include "malloc/classes.h"
#include "malloc/malloc.h"

static always_inline void *malloc_fast(size_t n)
{
    if (likely(n < sheaf_fast.limit)) {
        void *object = rseq_pop(&sheaf_fast.area, sheaf_fast.base, class_ids[(n + 7) >> 3]);
        if (likely(object != NULL))
            return object;
    }
    return malloc_slow(n);
}

static always_inline void free_fast(void *p)
{
    uintptr_t unit = ((uintptr_t)p - sheaf_fast.region) >> UNIT_SHIFT;
    if (likely(unit < sheaf_fast.units) &&
        likely(rseq_push(&sheaf_fast.area, sheaf_fast.base, sheaf_fast.ids[unit], p)))
        return;
    free_slow(p);
}

#endif
