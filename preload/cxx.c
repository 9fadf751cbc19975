/*
 * The 20 operators that libstdc++ exports, without libstdc++: its new-handler and its bad_alloc are looked up when an
 * allocation fails. Built with -fexceptions, so that the exception passes through.
 */
#define _GNU_SOURCE
#include "malloc/fast.h"
#include "os/message.h"

#include <dlfcn.h>
#include <stdlib.h>

typedef void (*new_handler)(void);

static new_handler current_handler(void)
{
    union {
        void *symbol;
        new_handler (*call)(void);
    } get = {.symbol = dlsym(RTLD_DEFAULT, "_ZSt15get_new_handlerv")};
    return get.symbol ? get.call() : NULL;
}

static _Noreturn noinline_cold void throw_bad_alloc(void)
{
    union {
        void *symbol;
        void (*call)(void);
    } raise = {.symbol = dlsym(RTLD_DEFAULT, "_ZSt17__throw_bad_allocv")};
    if (raise.symbol)
        raise.call();
    struct message m = {.length = 0};
    message_text(&m, "sheaf: operator new found no memory, and no libstdc++ to throw bad_alloc");
    message_write(&m);
    abort();
}

static void *allocate(size_t size, size_t align)
{
    return align ? malloc_aligned_fast(align, size) : malloc_fast(size);
}

/* As the standard has it: the handler is called until memory is found, it throws, or there is none. */
static noinline_cold void *new_failed(size_t size, size_t align)
{
    for (;;) {
        new_handler handler = current_handler();
        if (!handler)
            throw_bad_alloc();
        handler();
        void *p = allocate(size, align);
        if (p)
            return p;
    }
}

/* What the fast paths leave: called last, so that they need no frame. */
static __attribute__((noinline)) void *new_slow(size_t size)
{
    void *p = malloc_slow(size);
    return likely(p != NULL) ? p : new_failed(size, 0);
}

static __attribute__((noinline)) void *aligned_new_slow(size_t size, size_t align)
{
    void *p = malloc_aligned(align, size);
    return likely(p != NULL) ? p : new_failed(size, align);
}

/* ---- the four that a program replaces, and all others stand on ---- */

sheaf_export void *_Znwm(size_t size);
line_export void *_Znwm(size_t size)
{
    void *p = malloc_try(size);
    return likely(p != NULL) ? p : new_slow(size);
}

sheaf_export void *_ZnwmSt11align_val_t(size_t size, size_t align);
line_export void *_ZnwmSt11align_val_t(size_t size, size_t align)
{
    void *p = malloc_try(size_for_aligned(align, size));
    return likely(p != NULL) ? p : aligned_new_slow(size, align);
}

sheaf_export void _ZdlPv(void *p);
line_export void _ZdlPv(void *p)
{
    free_fast(p);
}

sheaf_export void _ZdlPvSt11align_val_t(void *p, size_t align);
line_export void _ZdlPvSt11align_val_t(void *p, size_t align)
{
    (void)align;
    free_fast(p);
}

/*
 * The same by their symbols: whatever the program or another library put there. What nothrow new gave may be deleted
 * by plain delete (std::stable_sort does so), so when a program replaces some, the others must follow, as libstdc++'s
 * do. Where nothing is replaced that costs a jump. The names keep the compiler from seeing that it knows the
 * functions.
 */
void *plain_new(size_t size) __asm__("_Znwm");
void *array_new(size_t size) __asm__("_Znam");
void *aligned_new(size_t size, size_t align) __asm__("_ZnwmSt11align_val_t");
void *aligned_array_new(size_t size, size_t align) __asm__("_ZnamSt11align_val_t");
void plain_delete(void *p) __asm__("_ZdlPv");
void array_delete(void *p) __asm__("_ZdaPv");
void aligned_delete(void *p, size_t align) __asm__("_ZdlPvSt11align_val_t");
void aligned_array_delete(void *p, size_t align) __asm__("_ZdaPvSt11align_val_t");

/* ---- arrays ---- */

sheaf_export void *_Znam(size_t size);
sheaf_export void *_Znam(size_t size)
{
    return plain_new(size);
}

sheaf_export void *_ZnamSt11align_val_t(size_t size, size_t align);
sheaf_export void *_ZnamSt11align_val_t(size_t size, size_t align)
{
    return aligned_new(size, align);
}

/* ---- nothrow ---- */

/*
 * libstdc++'s own operator of that name, which calls the throwing one and catches what it or the handler throws: C
 * cannot. Without a handler nothing can be thrown by ours, and NULL is all there is to say.
 */
static noinline_cold void *next_nothrow(const char *symbol, size_t size, size_t align, const void *tag)
{
    union {
        void *symbol;
        void *(*plain)(size_t, const void *);
        void *(*aligned)(size_t, size_t, const void *);
    } next = {.symbol = dlsym(RTLD_NEXT, symbol)};
    if (!next.symbol) /* libstdc++ is linked into the program: what is thrown will end it */
        return align ? aligned_new(size, align) : plain_new(size);
    return align ? next.aligned(size, align, tag) : next.plain(size, tag);
}

static noinline_cold void *nothrow_failed(const char *symbol, size_t size, size_t align, const void *tag)
{
    return current_handler() ? next_nothrow(symbol, size, align, tag) : NULL;
}

static void *own_new(size_t size) __attribute__((alias("_Znwm")));
static void *own_array_new(size_t size) __attribute__((alias("_Znam")));
static void *own_aligned_new(size_t size, size_t align) __attribute__((alias("_ZnwmSt11align_val_t")));
static void *own_aligned_array_new(size_t size, size_t align) __attribute__((alias("_ZnamSt11align_val_t")));

#define NOTHROW(name, replaced)                                                                                      \
    sheaf_export void *name(size_t size, const void *tag);                                                           \
    sheaf_export void *name(size_t size, const void *tag)                                                            \
    {                                                                                                                \
        if (unlikely(replaced))                                                                                      \
            return next_nothrow(#name, size, 0, tag);                                                                \
        void *p = malloc_fast(size);                                                                                 \
        return likely(p != NULL) ? p : nothrow_failed(#name, size, 0, tag);                                          \
    }
NOTHROW(_ZnwmRKSt9nothrow_t, plain_new != own_new)
NOTHROW(_ZnamRKSt9nothrow_t, plain_new != own_new || array_new != own_array_new)

#define NOTHROW_ALIGNED(name, replaced)                                                                              \
    sheaf_export void *name(size_t size, size_t align, const void *tag);                                             \
    sheaf_export void *name(size_t size, size_t align, const void *tag)                                              \
    {                                                                                                                \
        if (unlikely(replaced))                                                                                      \
            return next_nothrow(#name, size, align, tag);                                                            \
        void *p = malloc_aligned_fast(align, size);                                                                  \
        return likely(p != NULL) ? p : nothrow_failed(#name, size, align, tag);                                      \
    }
NOTHROW_ALIGNED(_ZnwmSt11align_val_tRKSt9nothrow_t, aligned_new != own_aligned_new)
NOTHROW_ALIGNED(_ZnamSt11align_val_tRKSt9nothrow_t,
                aligned_new != own_aligned_new || aligned_array_new != own_aligned_array_new)

/* ---- delete: size and tag tell nothing that the map does not know ---- */

#define DELETE(name, on)                                                                                             \
    sheaf_export void name(void *p);                                                                                 \
    sheaf_export void name(void *p)                                                                                  \
    {                                                                                                                \
        on(p);                                                                                                       \
    }
DELETE(_ZdaPv, plain_delete)
DELETE(_ZdlPvm, plain_delete)
DELETE(_ZdaPvm, array_delete)
DELETE(_ZdlPvRKSt9nothrow_t, plain_delete)
DELETE(_ZdaPvRKSt9nothrow_t, array_delete)

#define DELETE_ALIGNED(name, on)                                                                                     \
    sheaf_export void name(void *p, size_t align);                                                                   \
    sheaf_export void name(void *p, size_t align)                                                                    \
    {                                                                                                                \
        on(p, align);                                                                                                \
    }
DELETE_ALIGNED(_ZdaPvSt11align_val_t, aligned_delete)
DELETE_ALIGNED(_ZdlPvSt11align_val_tRKSt9nothrow_t, aligned_delete)
DELETE_ALIGNED(_ZdaPvSt11align_val_tRKSt9nothrow_t, aligned_array_delete)

#define DELETE_SIZED_ALIGNED(name, on)                                                                               \
    sheaf_export void name(void *p, size_t size, size_t align);                                                      \
    sheaf_export void name(void *p, size_t size, size_t align)                                                       \
    {                                                                                                                \
        (void)size;                                                                                                  \
        on(p, align);                                                                                                \
    }
DELETE_SIZED_ALIGNED(_ZdlPvmSt11align_val_t, aligned_delete)
DELETE_SIZED_ALIGNED(_ZdaPvmSt11align_val_t, aligned_array_delete)
