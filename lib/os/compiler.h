/* Words of the compiler that the rest of the library uses, and its assertions. */
#ifndef SHEAF_OS_COMPILER_H
#define SHEAF_OS_COMPILER_H

#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>
#include <stdatomic.h>

#define likely(x)     __builtin_expect(!!(x), 1)
#define unlikely(x)   __builtin_expect(!!(x), 0)
#define always_inline inline __attribute__((always_inline))
#define noinline_cold __attribute__((noinline, cold))
/*
 * Where the preloaded object keeps things (preload/layout.ld): code that few programs come by, but those often, so
 * that it is not cold; tables, behind the small variables, which then share their pages; variables that are read
 * before anything near them is written, in a page that the loader has written: a page that is 0 and read first costs
 * two faults.
 */
#define apart         __attribute__((noinline, section(".text.unlikely.apart")))
#define large_table   __attribute__((section(".bss.tables")))
#define early_data    __attribute__((section(".data.early")))
#define cache_aligned __attribute__((aligned(64)))
#define sheaf_export  __attribute__((visibility("default")))
#define hidden        __attribute__((visibility("hidden"))) /* of declarations: the compiler need not ask the GOT */

#define array_size(a) (sizeof(a) / sizeof((a)[0]))

/* Relaxed accesses to words that other threads write too: one load or store each, no order implied. */
#define read_once(x)     __atomic_load_n(&(x), __ATOMIC_RELAXED)
#define write_once(x, v) __atomic_store_n(&(x), (v), __ATOMIC_RELAXED)

static inline uint64_t round_up(uint64_t n, uint64_t power_of_two)
{
    return (n + power_of_two - 1) & ~(power_of_two - 1);
}

static inline bool is_power_of_two(uint64_t n)
{
    return n && !(n & (n - 1));
}

/* The number of the highest set bit; n must not be 0. */
static inline unsigned log2_floor(uint64_t n)
{
    return 63 - (unsigned)__builtin_clzll(n);
}

/*
 * Invariants are asserted in the checking build (-Dchecking=true) only; what a user's program can break is reported
 * in every build, by misuse_report().
 */
_Noreturn void sheaf_assert_failed(const char *what, const char *file, int line);
#ifdef SHEAF_CHECKING
#define sheaf_assert(x) (likely(x) ? (void)0 : sheaf_assert_failed(#x, __FILE__, __LINE__))
#else
#define sheaf_assert(x) ((void)sizeof(x))
#endif

#endif
