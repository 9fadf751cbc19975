/* The exported names of sheaf/malloc.h; only in libsheaf. */
#include "sheaf/malloc.h"
#include "malloc/fast.h"
#include "process/fork.h"
#include "process/decay.h"

#include <errno.h>
#include <pthread.h>

sheaf_export void *sheaf_malloc(size_t size)
{
    return malloc_fast(size);
}

sheaf_export void *sheaf_calloc(size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    return malloc_zeroed(bytes);
}

sheaf_export void *sheaf_realloc(void *p, size_t size)
{
    if (!p)
        return malloc_fast(size);
    if (size)
        return malloc_resize(p, size);
    free_fast(p);
    return NULL;
}

sheaf_export void *sheaf_aligned_alloc(size_t align, size_t size)
{
    if (!is_power_of_two(align)) {
        errno = EINVAL;
        return NULL;
    }
    return malloc_aligned(align, size);
}

sheaf_export void sheaf_free(void *p)
{
    free_fast(p);
}

sheaf_export size_t sheaf_malloc_usable_size(void *p)
{
    return p ? malloc_size(p, "malloc_usable_size of") : 0;
}

sheaf_export int sheaf_malloc_trim(void)
{
    return cache_trim_all() != 0;
}

/* A program that links the library chooses nothing; it gets the defaults. Weak: the unit tests choose. */
__attribute__((weak)) void sheaf_configure(struct sheaf_config *config)
{
    (void)config;
}

void sheaf_started(void)
{
    pthread_atfork(cache_fork_prepare, cache_fork_parent, cache_fork_child);
}
