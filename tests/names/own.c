/*
 * A malloc of the program's own, of which the tests take any part: names that are left out are made local. It has a
 * heap of its own, and gives what is not from there to the next definition of the function. TAG is its letter in the
 * log. With LIBC_NAMES the next definitions are the __libc_ names, where there are such.
 */
#define _GNU_SOURCE
#include "names.h"

#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PART __attribute__((visibility("default"), weak))
#define HEAP (16ul << 20)

struct head {
    size_t size, unused;
};

static alignas(4096) char heap[HEAP];
static size_t used;

static bool is_own(const void *p)
{
    return (uintptr_t)p - (uintptr_t)heap < HEAP;
}

__attribute__((constructor)) static void announce(void)
{
    names_heap(TAG[0], heap, HEAP);
}

static void *take(size_t size, size_t align)
{
    align = align < 16 ? 16 : align;
    size_t room = size + align + sizeof(struct head), at = __atomic_fetch_add(&used, room, __ATOMIC_RELAXED);
    if (size > HEAP || at + room > HEAP) {
        errno = ENOMEM;
        return NULL;
    }
    uintptr_t p = ((uintptr_t)heap + at + sizeof(struct head) + align - 1) & -align;
    ((struct head *)p)[-1].size = size;
    return (void *)p;
}

static void *take_more(void *p, size_t size)
{
    void *to = take(size, 16);
    if (to && p) {
        size_t old = ((struct head *)p)[-1].size;
        memcpy(to, p, old < size ? old : size);
    }
    return to;
}

static void *next(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (!found)
        abort();
    return found;
}

#define NEXT(type, name) ((type)(uintptr_t)next(name))
#define RAN(name)        names_ran(TAG[0], name)

void *__libc_realloc(void *p, size_t size);
void __libc_free(void *p);

/* ---- for libraries that hand out memory by a function of their own ---- */

__attribute__((visibility("default"))) void *own_take(size_t size)
{
    return take(size, 16);
}

/* ---- C ---- */

PART void *malloc(size_t size)
{
    RAN("malloc");
    return take(size, 16);
}

PART void free(void *p)
{
    if (!p)
        return;
    RAN("free");
    if (is_own(p))
        return;
#ifdef LIBC_NAMES
    __libc_free(p);
#else
    NEXT(void (*)(void *), "free")(p);
#endif
}

PART void *calloc(size_t count, size_t size)
{
    RAN("calloc");
    return take(count * size, 16);
}

PART void *realloc(void *p, size_t size)
{
    RAN("realloc");
    if (!p || is_own(p))
        return take_more(p, size);
#ifdef LIBC_NAMES
    return __libc_realloc(p, size);
#else
    return NEXT(void *(*)(void *, size_t), "realloc")(p, size);
#endif
}

PART void *reallocarray(void *p, size_t count, size_t size)
{
    RAN("reallocarray");
    if (!p || is_own(p))
        return take_more(p, count * size);
    return NEXT(void *(*)(void *, size_t, size_t), "reallocarray")(p, count, size);
}

PART void *aligned_alloc(size_t align, size_t size)
{
    RAN("aligned_alloc");
    return take(size, align);
}

PART void *memalign(size_t align, size_t size)
{
    RAN("memalign");
    return take(size, align);
}

PART int posix_memalign(void **out, size_t align, size_t size)
{
    RAN("posix_memalign");
    *out = take(size, align);
    return *out ? 0 : ENOMEM;
}

PART void *valloc(size_t size)
{
    RAN("valloc");
    return take(size, 4096);
}

PART void *pvalloc(size_t size)
{
    RAN("pvalloc");
    return take((size + 4095) & -4096ul, 4096);
}

PART size_t malloc_usable_size(void *p)
{
    RAN("malloc_usable_size");
    if (!p)
        return 0;
    if (is_own(p))
        return ((struct head *)p)[-1].size;
    return NEXT(size_t(*)(void *), "malloc_usable_size")(p);
}

/* ---- C++; the tag of nothrow forms is never read ---- */

#define NEW(name, parameters, size, align)                                                                           \
    PART void *name parameters;                                                                                      \
    PART void *name parameters                                                                                       \
    {                                                                                                                \
        RAN(#name);                                                                                                  \
        return take(size, align);                                                                                    \
    }
NEW(_Znwm, (size_t size), size, 16)
NEW(_Znam, (size_t size), size, 16)
NEW(_ZnwmRKSt9nothrow_t, (size_t size, const void *tag __attribute__((unused))), size, 16)
NEW(_ZnamRKSt9nothrow_t, (size_t size, const void *tag __attribute__((unused))), size, 16)
NEW(_ZnwmSt11align_val_t, (size_t size, size_t align), size, align)
NEW(_ZnamSt11align_val_t, (size_t size, size_t align), size, align)
NEW(_ZnwmSt11align_val_tRKSt9nothrow_t, (size_t size, size_t align, const void *tag __attribute__((unused))), size,
    align)
NEW(_ZnamSt11align_val_tRKSt9nothrow_t, (size_t size, size_t align, const void *tag __attribute__((unused))), size,
    align)

#define DELETE(name)                                                                                                 \
    PART void name(void *p, size_t one, size_t two);                                                                 \
    PART void name(void *p, size_t one, size_t two)                                                                  \
    {                                                                                                                \
        RAN(#name);                                                                                                  \
        if (p && !is_own(p))                                                                                         \
            NEXT(void (*)(void *, size_t, size_t), #name)(p, one, two);                                              \
    }
DELETE(_ZdlPv)
DELETE(_ZdaPv)
DELETE(_ZdlPvm)
DELETE(_ZdaPvm)
DELETE(_ZdlPvRKSt9nothrow_t)
DELETE(_ZdaPvRKSt9nothrow_t)
DELETE(_ZdlPvSt11align_val_t)
DELETE(_ZdaPvSt11align_val_t)
DELETE(_ZdlPvmSt11align_val_t)
DELETE(_ZdaPvmSt11align_val_t)
DELETE(_ZdlPvSt11align_val_tRKSt9nothrow_t)
DELETE(_ZdaPvSt11align_val_tRKSt9nothrow_t)
