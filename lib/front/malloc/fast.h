/*
 * The fast paths, to be inlined into malloc() and free(). They use no atomic operation and no lock, and do not
 * touch the object or its slab. Every instruction counts: docs/design-notes.md has the numbers and what was tried.
 */
#ifndef SHEAF_MALLOC_FAST_H
#define SHEAF_MALLOC_FAST_H

#include "front/malloc/classes.h"
#include "front/malloc/malloc.h"

/* Entry points start a cache line, because their speed otherwise depends on unrelated code before them. */
#define line_export sheaf_export __attribute__((aligned(64)))

/* `base` is rseq_roots.cid_base or, for C++'s operators, cxx_base. Returns NULL when the fast path missed. */
static always_inline void *malloc_try_at(uintptr_t base, size_t n)
{
    return likely(n < fast_head(base)->limit) ? rseq_pop_class(base, n) : NULL;
}

static always_inline void *malloc_try(size_t n)
{
    return malloc_try_at(rseq_roots.cid_base, n);
}

static always_inline void *malloc_fast(size_t n)
{
    void *object = malloc_try(n);
    return likely(object != NULL) ? object : malloc_missed(n);
}

/*
 * The size to request so that the object is aligned: the next multiple of `align`, a power of two. Returns
 * SIZE_MAX when no class guarantees the alignment. The size of a class up to CLASS_MOST that holds a multiple of
 * `align` is itself a multiple (cache/slot/spacing.def), and objects lie at multiples of their size from a multiple
 * of 64 KiB.
 */
static always_inline size_t size_for_aligned(size_t align, size_t n)
{
    return likely(n - 1 < CLASS_MOST && align <= CLASS_MOST) ? (n + align - 1) & -align : SIZE_MAX;
}

static always_inline void *malloc_aligned_fast(size_t align, size_t n)
{
    void *object = malloc_try(size_for_aligned(align, n));
    return likely(object != NULL) ? object : malloc_aligned(align, n);
}

/* Returns false when the fast path missed. */
static always_inline bool free_try_at(uintptr_t base, void *p)
{
    intptr_t at = (intptr_t)(base - 1 - (uintptr_t)p) >> SLICE_SHIFT;
    return likely((uintptr_t)at > fast_head(base)->lowest) && likely(rseq_push_slice(base, (uintptr_t)at, p));
}

static always_inline void free_fast(void *p)
{
    if (unlikely(!free_try_at(rseq_roots.cid_base, p)))
        free_missed(p);
}

#endif
