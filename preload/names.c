/* Whose malloc it is, and the functions of the C library that are defined by others. */
#define _GNU_SOURCE
#include "preload/names.h"
#include "platform/config/config.h"

#include <errno.h>
#include <stdlib.h>

#ifdef SHEAF_STATIC

const struct other_malloc *sheaf_steps_aside(void)
{
    return NULL;
}

const struct other_malloc *sheaf_owner_of_foreign(void)
{
    return NULL;
}

#else

#include "preload/next.h"

/*
 * The dynamic linker bound our symbols when it loaded this object (-z now), so the answer never changes. Threads that
 * race here write the same value. Where both symbols are in this object, nothing is kept, because the comparison is
 * as fast. Elsewhere a symbol that is bound to an executable needs a second look: a program that was linked without
 * -pie and takes the address of malloc has an entry of its PLT for it, which leads to ours.
 */
bool names_ours(void)
{
    static enum { UNKNOWN, OURS, OTHERS } answer;
    if (likely(names_bound_here(bound_malloc) && names_bound_here(bound_free)))
        return true;
    if (__atomic_load_n(&answer, __ATOMIC_RELAXED) == UNKNOWN) {
        bool ours = (names_bound_here(bound_malloc) || !next_defined_before("malloc")) &&
                    (names_bound_here(bound_free) || !next_defined_before("free"));
        __atomic_store_n(&answer, ours ? OURS : OTHERS, __ATOMIC_RELAXED);
    }
    return __atomic_load_n(&answer, __ATOMIC_RELAXED) == OURS;
}

const struct other_malloc *sheaf_steps_aside(void)
{
    return likely(names_ours()) ? NULL : &next_malloc;
}

const struct other_malloc *sheaf_owner_of_foreign(void)
{
    return names_ours() && !next_is_another() ? NULL : &next_malloc;
}

#endif

/* ---- functions that lead to another one through its symbol, also where the program has replaced only that ---- */

/* From C23; older headers do not declare them. */
void free_sized(void *p, size_t size);
void free_aligned_sized(void *p, size_t align, size_t size);
void cfree(void *p);
void *__libc_reallocarray(void *p, size_t count, size_t size);

static void *array(void *p, size_t count, size_t size)
{
    size_t bytes;
    if (unlikely(__builtin_mul_overflow(count, size, &bytes))) {
        errno = ENOMEM;
        return NULL;
    }
    return bound_realloc(p, bytes);
}

typedef void *array_function(void *p, size_t count, size_t size);

sheaf_export void *reallocarray(void *p, size_t count, size_t size)
{
    array_function *next = names_ours() ? array : next_or("reallocarray", array_function, array);
    return next(p, count, size);
}

sheaf_export void *__libc_reallocarray(void *p, size_t count, size_t size)
{
    array_function *next = names_ours() ? array : next_or("__libc_reallocarray", array_function, array);
    return next(p, count, size);
}

static void sized(void *p, size_t size)
{
    (void)size;
    bound_free(p);
}

static void aligned_sized(void *p, size_t align, size_t size)
{
    (void)align, (void)size;
    bound_free(p);
}

typedef void sized_function(void *p, size_t size);
typedef void aligned_sized_function(void *p, size_t align, size_t size);

/* The size and the alignment are ignored: programs pass wrong ones (after a realloc), and the slice map has the class
 * of every object. */
sheaf_export void free_sized(void *p, size_t size)
{
    sized_function *next = names_ours() ? sized : next_or("free_sized", sized_function, sized);
    next(p, size);
}

sheaf_export void free_aligned_sized(void *p, size_t align, size_t size)
{
    aligned_sized_function *next =
        names_ours() ? aligned_sized : next_or("free_aligned_sized", aligned_sized_function, aligned_sized);
    next(p, align, size);
}

/* Not the next definition: new releases of glibc have none, and that of old ones leads past the program's free. */
sheaf_export void cfree(void *p)
{
    bound_free(p);
}
