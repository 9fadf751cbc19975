/*
 * Exports the C entry points (front/malloc/entry.h). The C library itself calls malloc, free, calloc and realloc
 * through their plain names. The __libc_ names are for programs that call them directly.
 */
#define _GNU_SOURCE
#include "preload/names.h"

#include <malloc.h>
#include <stdlib.h>

/* What an entry point returns that failed: where Sheaf steps aside, the result of the next function of that name. */
#define ENTRY_FAILED(value, name, ...)                                                                               \
    __extension__({                                                                                                  \
        __typeof__(name) *next_entry_ = names_ours() ? NULL : next_or(#name, __typeof__(name), NULL);                \
        next_entry_ ? next_entry_(__VA_ARGS__) : (value);                                                            \
    })
#include "front/malloc/entry.h"

line_export void *malloc(size_t size)
{
    return malloc_fast(size);
}

line_export void free(void *p)
{
    free_fast(p);
}

line_export void *calloc(size_t count, size_t size)
{
    return entry_calloc(count, size);
}

sheaf_export void *realloc(void *p, size_t size)
{
    return entry_realloc(p, size);
}

line_export void *aligned_alloc(size_t align, size_t size)
{
    return entry_aligned_alloc(align, size);
}

sheaf_export void *memalign(size_t align, size_t size)
{
    return entry_memalign(align, size);
}

line_export int posix_memalign(void **out, size_t align, size_t size)
{
    return entry_posix_memalign(out, align, size);
}

sheaf_export void *valloc(size_t size)
{
    return entry_valloc(size);
}

sheaf_export void *pvalloc(size_t size)
{
    return entry_pvalloc(size);
}

static size_t no_size(void *p)
{
    (void)p;
    return 0;
}

sheaf_export size_t malloc_usable_size(void *p)
{
    size_t size = entry_usable_size(p);
    if (likely(size != SIZE_OF_ANOTHER))
        return size;
    return next_or("malloc_usable_size", __typeof__(malloc_usable_size), no_size)(p);
}

sheaf_export int malloc_trim(size_t pad)
{
    return entry_trim(pad);
}

/* ---- the names that programs call whose malloc leads to libc's ---- */

#define LIBC_NAME(type, name, entry, parameters, ...)                                                                \
    type name parameters;                                                                                            \
    sheaf_export type name parameters                                                                                \
    {                                                                                                                \
        return likely(names_ours()) ? entry(__VA_ARGS__) : next_or(#name, __typeof__(name), entry)(__VA_ARGS__);     \
    }
LIBC_NAME(void *, __libc_malloc, malloc, (size_t size), size)
LIBC_NAME(void *, __libc_calloc, calloc, (size_t count, size_t size), count, size)
LIBC_NAME(void *, __libc_realloc, realloc, (void *p, size_t size), p, size)
LIBC_NAME(void *, __libc_memalign, memalign, (size_t align, size_t size), align, size)
LIBC_NAME(void *, __libc_valloc, valloc, (size_t size), size)
LIBC_NAME(void *, __libc_pvalloc, pvalloc, (size_t size), size)
LIBC_NAME(int, __posix_memalign, posix_memalign, (void **out, size_t align, size_t size), out, align, size)

void __libc_free(void *p);
sheaf_export void __libc_free(void *p)
{
    if (likely(names_ours()))
        free(p);
    else
        next_or("__libc_free", __typeof__(free), free)(p);
}
