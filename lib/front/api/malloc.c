/* Exports the names of sheaf/malloc.h; only in libsheaf. */
#include "sheaf/malloc.h"
#include "front/malloc/entry.h"
#include "process/fork.h"

#include <pthread.h>

line_export void *sheaf_malloc(size_t size)
{
    return malloc_fast(size);
}

line_export void sheaf_free(void *p)
{
    free_fast(p);
}

sheaf_export void *sheaf_calloc(size_t count, size_t size)
{
    return entry_calloc(count, size);
}

sheaf_export void *sheaf_realloc(void *p, size_t size)
{
    return entry_realloc(p, size);
}

sheaf_export void *sheaf_aligned_alloc(size_t align, size_t size)
{
    return entry_aligned_alloc(align, size);
}

sheaf_export size_t sheaf_malloc_usable_size(void *p)
{
    return entry_usable_size(p);
}

sheaf_export int sheaf_malloc_trim(void)
{
    return entry_trim(0);
}

/* A program that links the library has the default options. Weak, so that the unit tests can choose others. */
__attribute__((weak)) void sheaf_configure(struct sheaf_config *config)
{
    (void)config;
}

#ifdef SHEAF_WEAK_LIBC /* glibc before 2.34 has pthread_atfork() in libpthread, and what it calls in libc */
extern int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *handle);
extern hidden void *__dso_handle;
#define register_handlers(prepare, parent, child) __register_atfork(prepare, parent, child, __dso_handle)
#else
#define register_handlers pthread_atfork
#endif

void sheaf_started(void)
{
    register_handlers(cache_fork_prepare, cache_fork_parent, cache_fork_child);
}

const struct other_malloc *sheaf_steps_aside(void)
{
    return NULL;
}

const struct other_malloc *sheaf_owner_of_foreign(void)
{
    return NULL;
}
