/*
 * The operators that libstdc++ exports, without a dependency on libstdc++: its new-handler and the function that
 * throws bad_alloc are looked up when an allocation fails. Built with -fexceptions, so that the exception
 * propagates. In the static library (SHEAF_STATIC) this file is a member of its own, for programs in C++ only.
 */
#define _GNU_SOURCE
#include "front/malloc/fast.h"
#include "preload/names.h"

#ifndef SHEAF_STATIC
#include "platform/os/message.h"
#include "preload/libc.h"

#include <dlfcn.h>
#include <stdlib.h>
#endif

typedef void (*new_handler)(void);

/*
 * Every form is a function at an address of its own, although the size, the alignment and the tag tell delete
 * nothing that the slice map does not know. Valgrind replaces functions by address: with two names at one address it
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

/*
 * ---- where the memory is not Sheaf's ----
 *
 * Where Sheaf steps aside, each operator leads to the next definition of its name, which is libstdc++'s as a rule.
 * A plug-in of a program in C may have brought libstdc++ later; then the four that the others lead to are defined as
 * libstdc++ defines them, by the program's functions. aligned_alloc() may also be replaced alone.
 */

typedef void *new_function(size_t size);
typedef void *aligned_new_function(size_t size, size_t align);

static noinline_cold void *new_by_program(size_t size, size_t align)
{
    size += !size;
    for (;;) {
        void *p = align ? bound_aligned_alloc(align, round_up(size, align)) : bound_malloc(size);
        if (p)
            return p;
        new_handler handler = current_handler();
        if (!handler)
            throw_bad_alloc();
        handler();
    }
}

static void *plain_by_program(size_t size)
{
    return new_by_program(size, 0);
}

static noinline_cold void *new_elsewhere(size_t size)
{
    return next_or("_Znwm", new_function, plain_by_program)(size);
}

static noinline_cold void *aligned_new_elsewhere(size_t size, size_t align)
{
    if (names_ours())
        return new_by_program(size, align);
    return next_or("_ZnwmSt11align_val_t", aligned_new_function, new_by_program)(size, align);
}

/* Continues where the fast paths missed. Called last, so that the fast paths need no stack frame. */
static __attribute__((noinline)) void *new_missed(size_t size)
{
    void *p = malloc_own(size);
    if (likely(p != NULL))
        return p;
    return names_ours() ? new_failed(size, 0) : new_elsewhere(size);
}

static __attribute__((noinline)) void *aligned_new_missed(size_t size, size_t align);

/* ---- the four that a program replaces and to which all others lead ---- */

sheaf_export replaceable void *_Znwm(size_t size);
line_export void *_Znwm(size_t size)
{
    void *p = malloc_try(size);
    return likely(p != NULL) ? p : new_missed(size);
}

/* From cxx_base, because it leads to aligned_alloc(), which the program may have replaced. */
sheaf_export replaceable void *_ZnwmSt11align_val_t(size_t size, size_t align);
line_export void *_ZnwmSt11align_val_t(size_t size, size_t align)
{
    void *p = malloc_try_at(rseq_roots.cxx_base, size_for_aligned(align, size));
    return likely(p != NULL) ? p : aligned_new_missed(size, align);
}

/* Sheaf has not started where it steps aside. */
#define ASIDE() (unlikely(!cache_layer_ready) && !names_ours())

/*
 * A form of delete whose fast path starts from `base`. Where that misses, the memory is Sheaf's if `ours`, and the
 * form leads to `lead` otherwise. Size, alignment and tag tell Sheaf nothing that the slice map does not know; they
 * are for the next definition.
 */
#define DELETE(kind, name, base, ours, lead, parameters, ...)                                                        \
    kind void name parameters;                                                                                       \
    static __attribute__((noinline)) void name##_slow parameters                                                     \
    {                                                                                                                \
        if (likely(ours)) {                                                                                          \
            free_missed(p);                                                                                          \
            return;                                                                                                  \
        }                                                                                                            \
        __typeof__(name) *next = names_ours() ? NULL : next_or(#name, __typeof__(name), NULL);                       \
        next ? next(__VA_ARGS__) : lead;                                                                             \
    }                                                                                                                \
    line_export void name parameters                                                                                 \
    {                                                                                                                \
        if (unlikely(!free_try_at(base, p)))                                                                         \
            name##_slow(__VA_ARGS__);                                                                                \
    }

DELETE(sheaf_export replaceable, _ZdlPv, rseq_roots.cid_base, !ASIDE(), bound_free(p), (void *p), p)
DELETE(sheaf_export replaceable, _ZdlPvSt11align_val_t, rseq_roots.cid_base, !ASIDE(), bound_free(p),
       (void *p, size_t align), p, align)

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

#ifdef SHEAF_STATIC
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
#else
#define REPLACED(name) (!names_bound_here(name))
#endif

/*
 * Operators that lead to others have fast paths of their own, which start from rseq_roots.cxx_base. They always
 * miss until an operator that missed finds that the program replaced none, and sets that base. The dynamic linker
 * bound our symbols when it loaded this object (-z now), so the answer never changes. Threads that race here write
 * the same values. A thread that sees ALL_OURS but not yet the base takes a slow path, which is correct as well.
 */
static enum { UNKNOWN, ALL_OURS, SOME_REPLACED } operators;

static __attribute__((noinline)) void operators_find(void)
{
    if (operators != UNKNOWN)
        return;
    if (REPLACED(plain_new) || REPLACED(array_new) || REPLACED(aligned_new) || REPLACED(aligned_array_new) ||
        REPLACED(plain_delete) || REPLACED(array_delete) || REPLACED(aligned_delete) ||
        REPLACED(aligned_array_delete) || !names_bound_here(bound_aligned_alloc)) {
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
    operators_find();
    return false;
}

static __attribute__((noinline)) void *aligned_new_missed(size_t size, size_t align)
{
    bool ours = all_ours();
    bool elsewhere = !ours && !names_bound_here(bound_aligned_alloc);
    if (unlikely(elsewhere) || (!ours && !names_ours()))
        return aligned_new_elsewhere(size, align);
    void *p = ours ? malloc_aligned(align, size) : malloc_aligned_fast(align, size);
    return likely(p != NULL) ? p : new_failed(size, align);
}

/* ---- arrays ---- */

static __attribute__((noinline)) void *array_new_missed(size_t size)
{
    if (all_ours())
        return new_missed(size);
    new_function *call = names_ours() ? plain_new : next_or("_Znam", new_function, plain_new);
    return call(size);
}

sheaf_export replaceable void *_Znam(size_t size);
line_export void *_Znam(size_t size)
{
    void *p = malloc_try_at(rseq_roots.cxx_base, size);
    return likely(p != NULL) ? p : array_new_missed(size);
}

sheaf_export replaceable void *_ZnamSt11align_val_t(size_t size, size_t align);
sheaf_export void *_ZnamSt11align_val_t(size_t size, size_t align)
{
    aligned_new_function *call =
        ASIDE() ? next_or("_ZnamSt11align_val_t", aligned_new_function, aligned_new) : aligned_new;
    return call(size, align);
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
    if (!next.symbol && !names_ours() && names_bound_here(plain_new) && !current_handler())
        return align ? bound_aligned_alloc(align, round_up(size + !size, align)) : bound_malloc(size + !size);
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
static __attribute__((noinline)) void *nothrow_missed(const char *symbol, size_t size, const void *tag, bool replaced)
{
    if (!all_ours() && (replaced || !names_ours()))
        return next_nothrow(symbol, size, 0, tag);
    void *p = malloc_missed(size);
    return likely(p != NULL) ? p : nothrow_failed(symbol, size, 0, tag);
}

static __attribute__((noinline)) void *aligned_nothrow_missed(const char *symbol, size_t size, size_t align,
                                                              const void *tag, bool replaced)
{
    if (!all_ours() && (replaced || !names_ours()))
        return next_nothrow(symbol, size, align, tag);
    void *p = malloc_aligned_fast(align, size);
    return likely(p != NULL) ? p : nothrow_failed(symbol, size, align, tag);
}

#define NOTHROW(name, replaced)                                                                                      \
    static __attribute__((noinline)) void *name##_slow(size_t size, const void *tag)                                 \
    {                                                                                                                \
        return nothrow_missed(#name, size, tag, replaced);                                                           \
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
        return aligned_nothrow_missed(#name, size, align, tag, replaced);                                            \
    }
#define ALIGNED_REPLACED (REPLACED(aligned_new) || !names_bound_here(bound_aligned_alloc))
NOTHROW_ALIGNED(_ZnwmSt11align_val_tRKSt9nothrow_t, ALIGNED_REPLACED)
NOTHROW_ALIGNED(_ZnamSt11align_val_tRKSt9nothrow_t, ALIGNED_REPLACED || REPLACED(aligned_array_new))

#endif

/* ---- delete ---- */

DELETE(sheaf_export distinct, _ZdlPvm, rseq_roots.cxx_base, all_ours(), plain_delete(p), (void *p, size_t size), p,
       size)
DELETE(sheaf_export distinct, _ZdaPvm, rseq_roots.cxx_base, all_ours(), array_delete(p), (void *p, size_t size), p,
       size)
DELETE(sheaf_export replaceable, _ZdaPv, rseq_roots.cxx_base, all_ours(), plain_delete(p), (void *p), p)
DELETE(sheaf_export distinct, _ZdlPvmSt11align_val_t, rseq_roots.cxx_base, all_ours(), aligned_delete(p, align),
       (void *p, size_t size, size_t align), p, size, align)

/* Aligned arrays are rare, and so are constructors that throw, after which nothrow forms are called. */
#define DELETE_RARE(kind, name, lead, parameters, ...)                                                               \
    kind void name parameters;                                                                                       \
    sheaf_export void name parameters                                                                                \
    {                                                                                                                \
        __typeof__(name) *next = ASIDE() ? next_or(#name, __typeof__(name), NULL) : NULL;                            \
        next ? next(__VA_ARGS__) : lead;                                                                             \
    }
DELETE_RARE(sheaf_export replaceable, _ZdaPvSt11align_val_t, aligned_delete(p, align), (void *p, size_t align), p,
            align)
DELETE_RARE(sheaf_export distinct, _ZdlPvSt11align_val_tRKSt9nothrow_t, aligned_delete(p, align),
            (void *p, size_t align, const void *tag), p, align, tag)
DELETE_RARE(sheaf_export distinct, _ZdaPvmSt11align_val_t, aligned_array_delete(p, align),
            (void *p, size_t size, size_t align), p, size, align)
DELETE_RARE(sheaf_export distinct, _ZdaPvSt11align_val_tRKSt9nothrow_t, aligned_array_delete(p, align),
            (void *p, size_t align, const void *tag), p, align, tag)
DELETE_RARE(sheaf_export distinct, _ZdlPvRKSt9nothrow_t, plain_delete(p), (void *p, const void *tag), p, tag)
DELETE_RARE(sheaf_export distinct, _ZdaPvRKSt9nothrow_t, array_delete(p), (void *p, const void *tag), p, tag)
