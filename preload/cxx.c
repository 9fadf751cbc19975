/*
 * The operators that libstdc++ exports, without a dependency on libstdc++: its new-handler and the function that
 * throws bad_alloc are looked up when an allocation fails. Built with -fexceptions, so that the exception
 * propagates. In the static library (SHEAF_STATIC) this file is a member of its own, for programs in C++ only.
 */
#define _GNU_SOURCE
#include "malloc/fast.h"

#ifndef SHEAF_STATIC
#include "os/message.h"
#include "preload/libc.h"

#include <dlfcn.h>
#include <stdlib.h>
#endif

typedef void (*new_handler)(void);

/*
 * Every form is a function at an address of its own, although the size, the alignment and the tag tell delete
 * nothing that the unit map does not know. Valgrind replaces functions by address: with two names at one address it
 * takes delete for delete[], and reports a mismatch. No_icf keeps the compiler from folding equal functions.
 */
#if __has_attribute(no_icf)
#define distinct __attribute__((no_icf))
#else
#define distinct
#endif

/*
 * Weak in static programs, which may define operators of their own, and with clang, which sees through the asm labels
 * below and would call the functions here directly and not through the symbol. Otherwise strong, because valgrind
 * replaces only strong functions in objects that are not libc's or libstdc++'s. The dynamic linker makes no
 * difference.
 */
#if defined(SHEAF_STATIC) || defined(__clang__)
#define replaceable distinct __attribute__((weak))
#else
#define replaceable distinct
#endif

#ifdef SHEAF_STATIC

/* A weak reference would not take them from libstdc++.a. */
extern new_handler current_handler(void) __asm__("_ZSt15get_new_handlerv");
extern _Noreturn void throw_bad_alloc(void) __asm__("_ZSt17__throw_bad_allocv");

#else

static new_handler current_handler(void)
{
    union {
        void *symbol;
        new_handler (*call)(void);
    } get = {.symbol = libc_symbol(RTLD_DEFAULT, "_ZSt15get_new_handlerv")};
    return get.symbol ? get.call() : NULL;
}

static _Noreturn noinline_cold void throw_bad_alloc(void)
{
    union {
        void *symbol;
        void (*call)(void);
    } raise = {.symbol = libc_symbol(RTLD_DEFAULT, "_ZSt17__throw_bad_allocv")};
    if (raise.symbol)
        raise.call();
    struct message m = {.length = 0};
    message_text(&m, "sheaf: operator new: out of memory, and no libstdc++ to throw std::bad_alloc");
    message_write(&m);
    abort();
}

#endif

static void *allocate(size_t size, size_t align)
{
    return align ? malloc_aligned_fast(align, size) : malloc_fast(size);
}

/* As the standard requires, calls the handler until memory is found, the handler throws, or none is set. */
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

/* Continues where the fast paths missed. Called last, so that the fast paths need no stack frame. */
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

/* ---- the four that a program replaces and to which all others lead ---- */

sheaf_export replaceable void *_Znwm(size_t size);
line_export void *_Znwm(size_t size)
{
    void *p = malloc_try(size);
    return likely(p != NULL) ? p : new_slow(size);
}

sheaf_export replaceable void *_ZnwmSt11align_val_t(size_t size, size_t align);
line_export void *_ZnwmSt11align_val_t(size_t size, size_t align)
{
    void *p = malloc_try(size_for_aligned(align, size));
    return likely(p != NULL) ? p : aligned_new_slow(size, align);
}

sheaf_export replaceable void _ZdlPv(void *p);
line_export void _ZdlPv(void *p)
{
    free_fast(p);
}

sheaf_export replaceable void _ZdlPvSt11align_val_t(void *p, size_t align);
line_export void _ZdlPvSt11align_val_t(void *p, size_t align)
{
    (void)align;
    free_fast(p);
}

/*
 * The operators by their symbols, and thus as the program or another library may have replaced them. Memory from
 * nothrow new may be deleted by plain delete (std::stable_sort does so). So when a program replaces some
 * operators, the others must lead to the replacements, as in libstdc++. The asm labels hide from the compiler that
 * these are functions it knows.
 */
void *plain_new(size_t size) __asm__("_Znwm");
void *array_new(size_t size) __asm__("_Znam");
void *aligned_new(size_t size, size_t align) __asm__("_ZnwmSt11align_val_t");
void *aligned_array_new(size_t size, size_t align) __asm__("_ZnamSt11align_val_t");
void plain_delete(void *p) __asm__("_ZdlPv");
void array_delete(void *p) __asm__("_ZdaPv");
void aligned_delete(void *p, size_t align) __asm__("_ZdlPvSt11align_val_t");
void aligned_array_delete(void *p, size_t align) __asm__("_ZdaPvSt11align_val_t");

/* ---- whether the program replaced operators ---- */

/* Aliases under local labels, which the assembler drops; otherwise profiles would show those names. */
#define own(label, symbol) __asm__(".Lown_" label) __attribute__((alias(symbol)))
static void *own_plain_new(size_t size) own("plain_new", "_Znwm");
static void *own_array_new(size_t size) own("array_new", "_Znam");
static void *own_aligned_new(size_t size, size_t align) own("aligned_new", "_ZnwmSt11align_val_t");
static void *own_aligned_array_new(size_t size, size_t align) own("aligned_array_new", "_ZnamSt11align_val_t");
static void own_plain_delete(void *p) own("plain_delete", "_ZdlPv");
static void own_array_delete(void *p) own("array_delete", "_ZdaPv");
static void own_aligned_delete(void *p, size_t align) own("aligned_delete", "_ZdlPvSt11align_val_t");
static void own_aligned_array_delete(void *p, size_t align) own("aligned_array_delete", "_ZdaPvSt11align_val_t");

/*
 * The compiler takes different names for different functions and would omit the comparison, so it must not see the
 * address.
 */
static bool differ(uintptr_t symbol, uintptr_t own)
{
    __asm__("" : "+r"(symbol));
    return symbol != own;
}
#define REPLACED(name) differ((uintptr_t)(name), (uintptr_t)(own_##name))

/*
 * Operators that lead to others have fast paths of their own, which start from rseq_roots.cxx_base. They always
 * miss until an operator that missed finds that the program replaced none, and sets that base. The dynamic linker
 * bound our symbols when it loaded this object (-z now), so the answer never changes. Threads that race here write
 * the same values. A thread that sees ALL_OURS but not yet the base takes a slow path, which is correct as well.
 */
static enum { UNKNOWN, ALL_OURS, SOME_REPLACED } operators;

static __attribute__((noinline)) void operators_look(void)
{
    if (operators != UNKNOWN)
        return;
    if (REPLACED(plain_new) || REPLACED(array_new) || REPLACED(aligned_new) || REPLACED(aligned_array_new) ||
        REPLACED(plain_delete) || REPLACED(array_delete) || REPLACED(aligned_delete) ||
        REPLACED(aligned_array_delete)) {
        __atomic_store_n(&operators, SOME_REPLACED, __ATOMIC_RELAXED);
        return;
    }
    uintptr_t base = __atomic_load_n(&rseq_roots.cid_base, __ATOMIC_ACQUIRE);
    if (!fast_head(base)->limit && !fast_head(rseq_roots.cpu_base)->limit)
        return; /* malloc's fast paths are not enabled yet */
    __atomic_store_n(&rseq_roots.cxx_base, base, __ATOMIC_RELEASE);
    __atomic_store_n(&operators, ALL_OURS, __ATOMIC_RELAXED);
}

static always_inline bool all_ours(void)
{
    if (__atomic_load_n(&operators, __ATOMIC_RELAXED) == ALL_OURS)
        return true;
    operators_look();
    return false;
}

/* ---- arrays ---- */

static __attribute__((noinline)) void *array_new_slow(size_t size)
{
    return all_ours() ? new_slow(size) : plain_new(size);
}

sheaf_export replaceable void *_Znam(size_t size);
line_export void *_Znam(size_t size)
{
    void *p = malloc_try_at(rseq_roots.cxx_base, size);
    return likely(p != NULL) ? p : array_new_slow(size);
}

sheaf_export replaceable void *_ZnamSt11align_val_t(size_t size, size_t align);
sheaf_export void *_ZnamSt11align_val_t(size_t size, size_t align)
{
    return aligned_new(size, align);
}

/* ---- nothrow; a static program takes libstdc++'s, which call the operators above and catch ---- */

#ifndef SHEAF_STATIC

/*
 * Calls libstdc++'s own operator of that name, which calls the throwing operator and catches what that or the
 * handler throws; C cannot catch. Without a handler ours throws nothing, so NULL is the result.
 */
static noinline_cold void *next_nothrow(const char *symbol, size_t size, size_t align, const void *tag)
{
    union {
        void *symbol;
        void *(*plain)(size_t, const void *);
        void *(*aligned)(size_t, size_t, const void *);
    } next = {.symbol = libc_symbol(RTLD_NEXT, symbol)};
    if (!next.symbol) /* libstdc++ is linked into the program: an exception will end it */
        return align ? aligned_new(size, align) : plain_new(size);
    return align ? next.aligned(size, align, tag) : next.plain(size, tag);
}

static noinline_cold void *nothrow_failed(const char *symbol, size_t size, size_t align, const void *tag)
{
    return current_handler() ? next_nothrow(symbol, size, align, tag) : NULL;
}

/*
 * Continues where the fast path missed. `replaced` tells whether the program replaced the plain operator or, for
 * arrays, the array form; each pair may be replaced separately.
 */
static __attribute__((noinline)) void *nothrow_slow(const char *symbol, size_t size, const void *tag, bool replaced)
{
    if (!all_ours() && replaced)
        return next_nothrow(symbol, size, 0, tag);
    void *p = malloc_slow(size);
    return likely(p != NULL) ? p : nothrow_failed(symbol, size, 0, tag);
}

static __attribute__((noinline)) void *aligned_nothrow_slow(const char *symbol, size_t size, size_t align,
                                                            const void *tag, bool replaced)
{
    if (!all_ours() && replaced)
        return next_nothrow(symbol, size, align, tag);
    void *p = malloc_aligned_fast(align, size);
    return likely(p != NULL) ? p : nothrow_failed(symbol, size, align, tag);
}

#define NOTHROW(name, replaced)                                                                                      \
    static __attribute__((noinline)) void *name##_slow(size_t size, const void *tag)                                 \
    {                                                                                                                \
        return nothrow_slow(#name, size, tag, replaced);                                                             \
    }                                                                                                                \
    sheaf_export void *name(size_t size, const void *tag);                                                           \
    line_export void *name(size_t size, const void *tag)                                                             \
    {                                                                                                                \
        void *p = malloc_try_at(rseq_roots.cxx_base, size);                                                          \
        return likely(p != NULL) ? p : name##_slow(size, tag);                                                       \
    }
NOTHROW(_ZnwmRKSt9nothrow_t, REPLACED(plain_new))
NOTHROW(_ZnamRKSt9nothrow_t, REPLACED(plain_new) || REPLACED(array_new))

/* Rare, hence without fast paths of their own. */
#define NOTHROW_ALIGNED(name, replaced)                                                                              \
    sheaf_export void *name(size_t size, size_t align, const void *tag);                                             \
    sheaf_export void *name(size_t size, size_t align, const void *tag)                                              \
    {                                                                                                                \
        return aligned_nothrow_slow(#name, size, align, tag, replaced);                                              \
    }
NOTHROW_ALIGNED(_ZnwmSt11align_val_tRKSt9nothrow_t, REPLACED(aligned_new))
NOTHROW_ALIGNED(_ZnamSt11align_val_tRKSt9nothrow_t, REPLACED(aligned_new) || REPLACED(aligned_array_new))

#endif

/* ---- delete ---- */

static __attribute__((noinline)) void plain_delete_slow(void *p)
{
    all_ours() ? free_slow(p) : plain_delete(p);
}

static __attribute__((noinline)) void array_delete_slow(void *p)
{
    all_ours() ? free_slow(p) : array_delete(p);
}

#define DELETE(name, on)                                                                                             \
    sheaf_export distinct void name(void *p);                                                                        \
    line_export void name(void *p)                                                                                   \
    {                                                                                                                \
        if (unlikely(!free_try_at(rseq_roots.cxx_base, p)))                                                          \
            on##_slow(p);                                                                                            \
    }
DELETE(_ZdlPvm, plain_delete)
DELETE(_ZdaPvm, array_delete)
replaceable void _ZdaPv(void *p);
DELETE(_ZdaPv, plain_delete)

/* Called where a constructor throws: rare, hence without fast paths of their own. */
sheaf_export distinct void _ZdlPvRKSt9nothrow_t(void *p);
sheaf_export void _ZdlPvRKSt9nothrow_t(void *p)
{
    plain_delete(p);
}

sheaf_export distinct void _ZdaPvRKSt9nothrow_t(void *p);
sheaf_export void _ZdaPvRKSt9nothrow_t(void *p)
{
    array_delete(p);
}

static __attribute__((noinline)) void aligned_delete_slow(void *p, size_t align)
{
    all_ours() ? free_slow(p) : aligned_delete(p, align);
}

sheaf_export distinct void _ZdlPvmSt11align_val_t(void *p, size_t size, size_t align);
line_export void _ZdlPvmSt11align_val_t(void *p, size_t size, size_t align)
{
    (void)size;
    if (unlikely(!free_try_at(rseq_roots.cxx_base, p)))
        aligned_delete_slow(p, align);
}

/* Aligned arrays are rare, hence without fast paths of their own. */
sheaf_export replaceable void _ZdaPvSt11align_val_t(void *p, size_t align);
sheaf_export void _ZdaPvSt11align_val_t(void *p, size_t align)
{
    aligned_delete(p, align);
}

sheaf_export distinct void _ZdlPvSt11align_val_tRKSt9nothrow_t(void *p, size_t align);
sheaf_export void _ZdlPvSt11align_val_tRKSt9nothrow_t(void *p, size_t align)
{
    aligned_delete(p, align);
}

sheaf_export distinct void _ZdaPvmSt11align_val_t(void *p, size_t size, size_t align);
sheaf_export void _ZdaPvmSt11align_val_t(void *p, size_t size, size_t align)
{
    (void)size;
    aligned_array_delete(p, align);
}

sheaf_export distinct void _ZdaPvSt11align_val_tRKSt9nothrow_t(void *p, size_t align);
sheaf_export void _ZdaPvSt11align_val_tRKSt9nothrow_t(void *p, size_t align)
{
    aligned_array_delete(p, align);
}
