/*
 * Exports the C entry points (malloc/entry.h). The C library itself calls malloc, free, calloc and realloc through
 * their plain names. The __libc_ names are for programs that call them directly.
 */
#define _GNU_SOURCE
#include "malloc/entry.h"

#include <malloc.h>
#include <stdlib.h>

/* From C23; older headers do not declare them. */
void free_sized(void *p, size_t size);
void free_aligned_sized(void *p, size_t align, size_t size);

#define alias_of(name) __attribute__((visibility("default"), alias(#name)))

line_export void *malloc(size_t size)
{
    return entry_malloc(size);
}

line_export void free(void *p)
{
    entry_free(p);
}

line_export void *calloc(size_t count, size_t size)
{
    return entry_calloc(count, size);
}

sheaf_export void *realloc(void *p, size_t size)
{
    return entry_realloc(p, size);
}

sheaf_export void *reallocarray(void *p, size_t count, size_t size)
{
    return entry_reallocarray(p, count, size);
}

/* The size and the alignment are ignored: programs pass wrong ones (after a realloc), and the unit map has the class
 * of every object. */
sheaf_export void free_sized(void *p, size_t size)
{
    (void)size;
    free(p);
}

sheaf_export void free_aligned_sized(void *p, size_t align, size_t size)
{
    (void)align, (void)size;
    free(p);
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

sheaf_export size_t malloc_usable_size(void *p)
{
    return entry_usable_size(p);
}

sheaf_export int malloc_trim(size_t pad)
{
    (void)pad;
    return entry_trim();
}

void cfree(void *p) alias_of(free);
void *__libc_malloc(size_t size) alias_of(malloc);
void *__libc_calloc(size_t count, size_t size) alias_of(calloc);
void *__libc_realloc(void *p, size_t size) alias_of(realloc);
void *__libc_reallocarray(void *p, size_t count, size_t size) alias_of(reallocarray);
void __libc_free(void *p) alias_of(free);
void *__libc_memalign(size_t align, size_t size) alias_of(memalign);
void *__libc_valloc(size_t size) alias_of(valloc);
void *__libc_pvalloc(size_t size) alias_of(pvalloc);
int __posix_memalign(void **out, size_t align, size_t size) alias_of(posix_memalign);
