/*
 * The allocation functions of the C library, each once, for the files that export them under a name: preload/malloc.c
 * and lib/front/api/malloc.c. malloc() and free() are the fast paths themselves (front/malloc/fast.h). Where releases
 * of glibc differ, the contract is that of the newest one. All may be called from any thread and from signal
 * handlers. A failure returns NULL with errno ENOMEM or EINVAL.
 */
#ifndef SHEAF_MALLOC_ENTRY_H
#define SHEAF_MALLOC_ENTRY_H

#include "front/malloc/fast.h"
#include "process/decay.h"

#include <errno.h>
#include <string.h>

/*
 * The value of a function that failed. The file that includes this one may define it to call the next function of
 * that name instead, where Sheaf steps aside.
 */
#ifndef ENTRY_FAILED
#define ENTRY_FAILED(value, name, ...) (value)
#endif

static always_inline void *entry_error(int error)
{
    errno = error;
    return NULL;
}

static always_inline void *entry_calloc(size_t count, size_t size)
{
    size_t bytes;
    if (unlikely(__builtin_mul_overflow(count, size, &bytes)))
        return entry_error(ENOMEM);
    void *p = malloc_try(bytes);
    return likely(p != NULL) ? memset(p, 0, bytes) : malloc_zeroed(bytes);
}

static always_inline void *entry_realloc(void *p, size_t size)
{
    return likely(p && size) ? malloc_resize(p, size) : malloc_or_free(p, size);
}

static __attribute__((noinline, unused)) void *entry_aligned_alloc_missed(size_t align, size_t size)
{
    void *p = likely(is_power_of_two(align)) ? malloc_aligned(align, size) : entry_error(EINVAL);
    return likely(p != NULL) ? p : ENTRY_FAILED(NULL, aligned_alloc, align, size);
}

static always_inline void *entry_aligned_alloc(size_t align, size_t size)
{
    void *p = likely(is_power_of_two(align)) ? malloc_try(size_for_aligned(align, size)) : NULL;
    return likely(p != NULL) ? p : entry_aligned_alloc_missed(align, size);
}

/* Like glibc, rounds an alignment that is no power of two up to the next one. EINVAL if there is none. */
static always_inline void *entry_memalign(size_t align, size_t size)
{
    if (unlikely(align > SIZE_MAX / 2 + 1))
        return ENTRY_FAILED(entry_error(EINVAL), memalign, align, size);
    size_t power = 8;
    while (power < align)
        power *= 2;
    void *p = malloc_aligned_fast(power, size);
    return likely(p != NULL) ? p : ENTRY_FAILED(NULL, memalign, align, size);
}

/* posix_memalign() returns the error and leaves errno alone. */
static __attribute__((noinline, unused)) int entry_posix_memalign_missed(void **out, size_t align, size_t size)
{
    void *p = malloc_try_others(size_for_aligned(align, size));
    if (unlikely(!p)) {
        int saved = errno;
        p = malloc_aligned(align, size);
        errno = saved;
        if (!p)
            return ENTRY_FAILED(ENOMEM, posix_memalign, out, align, size);
    }
    *out = p;
    return 0;
}

static always_inline int entry_posix_memalign(void **out, size_t align, size_t size)
{
    if (unlikely(align % sizeof(void *) || !is_power_of_two(align)))
        return ENTRY_FAILED(EINVAL, posix_memalign, out, align, size);
    void *p = malloc_try(size_for_aligned(align, size));
    if (unlikely(!p))
        return entry_posix_memalign_missed(out, align, size);
    *out = p;
    return 0;
}

static always_inline void *entry_valloc(size_t size)
{
    return malloc_init() ? malloc_aligned(space.page_size, size) : ENTRY_FAILED(entry_error(ENOMEM), valloc, size);
}

static always_inline void *entry_pvalloc(size_t size)
{
    if (!malloc_init() || size > PTRDIFF_MAX)
        return ENTRY_FAILED(entry_error(ENOMEM), pvalloc, size);
    return malloc_aligned(space.page_size, size ? round_up(size, space.page_size) : space.page_size);
}

/* SIZE_OF_ANOTHER if the block is another malloc's. */
static always_inline size_t entry_usable_size(const void *p)
{
    return p ? malloc_size(p, "malloc_usable_size of") : 0;
}

/* Returns 1 if memory was returned to the system, otherwise 0. `pad` is ignored. Not for signal handlers. */
static always_inline int entry_trim(size_t pad)
{
    (void)pad;
    return malloc_init() ? cache_trim_all() != 0 : ENTRY_FAILED(0, malloc_trim, pad);
}

#endif
