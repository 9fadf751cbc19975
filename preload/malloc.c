/*
 * The C entry points, with the contract of the newest glibc where releases differ. What libc itself calls goes
 * through malloc, free, calloc and realloc; the __libc_ names are for programs that call them directly.
 */
#define _GNU_SOURCE
#include "malloc/fast.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

/* C23; not in every libc's headers yet. */
void free_sized(void *p, size_t size);
void free_aligned_sized(void *p, size_t align, size_t size);

#define alias_of(name) __attribute__((visibility("default"), alias(#name)))

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
    size_t bytes;
    if (unlikely(__builtin_mul_overflow(count, size, &bytes))) {
        errno = ENOMEM;
        return NULL;
    }
    void *p = malloc_try(bytes);
    return likely(p != NULL) ? memset(p, 0, bytes) : malloc_zeroed(bytes);
}

sheaf_export void *realloc(void *p, size_t size)
{
    if (!p)
        return malloc(size);
    if (size)
        return malloc_resize(p, size);
    free(p);
    return NULL;
}

sheaf_export void *reallocarray(void *p, size_t count, size_t size)
{
    size_t bytes;
    if (unlikely(__builtin_mul_overflow(count, size, &bytes))) {
        errno = ENOMEM;
        return NULL;
    }
    return realloc(p, bytes);
}

/* The sizes are hints that programs get wrong (a realloc in between): the map knows better. */
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
    if (unlikely(!is_power_of_two(align))) {
        errno = EINVAL;
        return NULL;
    }
    return malloc_aligned_fast(align, size);
}

/* As glibc: alignments that are no power of two are rounded up; what cannot be is EINVAL. */
sheaf_export void *memalign(size_t align, size_t size)
{
    if (unlikely(align > SIZE_MAX / 2 + 1)) {
        errno = EINVAL;
        return NULL;
    }
    size_t power = 8;
    while (power < align)
        power *= 2;
    return malloc_aligned_fast(power, size);
}

/* errno stays as it is. */
static __attribute__((noinline)) int posix_memalign_slow(void **out, size_t align, size_t size)
{
    void *p = malloc_retry(size_for_aligned(align, size));
    if (unlikely(!p)) {
        int saved = errno;
        p = malloc_aligned(align, size);
        errno = saved;
        if (!p)
            return ENOMEM;
    }
    *out = p;
    return 0;
}

line_export int posix_memalign(void **out, size_t align, size_t size)
{
    if (unlikely(align % sizeof(void *) || !is_power_of_two(align)))
        return EINVAL;
    void *p = malloc_try(size_for_aligned(align, size));
    if (unlikely(!p))
        return posix_memalign_slow(out, align, size);
    *out = p;
    return 0;
}

sheaf_export void *valloc(size_t size)
{
    if (!malloc_init()) {
        errno = ENOMEM;
        return NULL;
    }
    return malloc_aligned(space.page_size, size);
}

sheaf_export void *pvalloc(size_t size)
{
    if (!malloc_init() || size > PTRDIFF_MAX) {
        errno = ENOMEM;
        return NULL;
    }
    return malloc_aligned(space.page_size, size ? round_up(size, space.page_size) : space.page_size);
}

sheaf_export size_t malloc_usable_size(void *p)
{
    return p ? malloc_size(p, "malloc_usable_size of") : 0;
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
