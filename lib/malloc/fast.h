/*
 * The fast paths, to be inlined into malloc() and free(). No atomic, no lock, no access to the object or its slab. Each
 * instruction counts: docs/design.md has their numbers and what was tried.
 */
#ifndef SHEAF_MALLOC_FAST_H
#define SHEAF_MALLOC_FAST_H

#include "malloc/classes.h"
#include "malloc/malloc.h"

static always_inline void *malloc_fast(size_t n)
{
    uintptr_t base = cid_base;
    if (likely(n < fast_head(base)->limit)) {
        void *object = rseq_pop_cid(base, class_table(base)->small[n]);
        if (likely(object != NULL))
            return object;
    }
    return malloc_slow(n);
}

static always_inline void free_fast(void *p)
{
    uintptr_t base = cid_base;
    intptr_t at = (intptr_t)(fast_head(base)->last - (uintptr_t)p) >> UNIT_SHIFT;
    if (likely((uintptr_t)at > fast_head(base)->lowest)) {
        uintptr_t id = ((const uint16_t *)base)[at];
        if (likely(rseq_push_cid(base, id, p)))
            return;
    }
    free_slow(p);
}

#endif
