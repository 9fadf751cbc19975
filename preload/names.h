/*
 * Whose malloc it is. A program, or an object that is loaded before this one, may define functions that this object
 * exports too; the dynamic linker then binds theirs. docs/production.md has the table.
 *
 * - Where `malloc` or `free` are not ours, all of ours steps aside: Sheaf never starts, and each exported function
 *   leads to the next definition of its name behind this object, which is the one that the process would have had
 *   without Sheaf.
 * - Where both are ours, functions that the C library or libstdc++ defines by others call those by their symbols.
 *
 * In the static library there is no other definition, and nothing is compared.
 */
#ifndef SHEAF_PRELOAD_NAMES_H
#define SHEAF_PRELOAD_NAMES_H

#include "platform/os/compiler.h"

/*
 * The functions by their symbols, and thus as the dynamic linker bound them. No file that includes this header and
 * defines one of them may use the name below for it, because clang sees through the labels.
 */
void *bound_malloc(size_t size) __asm__("malloc");
void *bound_realloc(void *p, size_t size) __asm__("realloc");
void *bound_aligned_alloc(size_t align, size_t size) __asm__("aligned_alloc");
void bound_free(void *p) __asm__("free");

#ifdef SHEAF_STATIC

#define names_ours()                  true
#define names_bound_here(function)    true
#define next_or(name, type, fallback) ((__typeof__(type) *)(fallback))

#else

/* Whether `malloc` and `free` are ours. The answer never changes. Any context. */
bool names_ours(void);

/* Whether the address of a symbol is in this object. The compiler must not see that it is that of a function. */
extern const char __ehdr_start[] hidden;
extern const char _edata[] hidden;
static inline bool names_in_object(uintptr_t address)
{
    __asm__("" : "+r"(address));
    return address - (uintptr_t)__ehdr_start < (uintptr_t)_edata - (uintptr_t)__ehdr_start;
}
#define names_bound_here(function) names_in_object((uintptr_t)(function))

/*
 * The function of that name in the first object behind this one that defines it, up to libc; 0 if there is none. The
 * result is kept in *found, which is 0 at first.
 *
 * Nothing is locked or allocated. Two threads may look up the same name, and a signal handler may interrupt a
 * look-up: each finds the same and writes the same. So the first call of a forwarded function may be made by a signal
 * handler, in the child of a fork, or by dlsym() itself on behalf of a malloc that looks for its successor.
 */
uintptr_t next_function(const char *name, uintptr_t *found);

/* The next function of that name, which is of that type, or `fallback`. */
#define next_or(name, type, fallback)                                                                                \
    __extension__({                                                                                                  \
        static uintptr_t next_found_ __attribute__((section(".bss.seldom")));                                        \
        uintptr_t next_ = next_function(name, &next_found_);                                                         \
        next_ ? (__typeof__(type) *)next_ : (fallback);                                                              \
    })

/* Whether the next `free` behind this object is another malloc's and not libc's. */
bool next_is_another(void);

#endif

#endif
