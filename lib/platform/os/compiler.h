/* Shorthands for attributes and builtins of the compiler, small arithmetic helpers, and assertions. */
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
 * Placement in the preloaded object (preload/layout.ld). `apart`: code that few programs run, but those that do
 * run it often, so it is not `cold`. `large_table`: tables that lie behind the small variables, which then share
 * their pages. `early_data`: variables that are read before anything near them is written. They lie in a page that
 * the loader has written, because a zero page that is read before it is written costs two page faults.
 */
#define apart         __attribute__((noinline, section(".text.unlikely.apart")))
#define large_table   __attribute__((section(".bss.tables")))
#define early_data    __attribute__((section(".data.early")))
#define cache_aligned __attribute__((aligned(64)))
#define sheaf_export  __attribute__((visibility("default")))
#define hidden        __attribute__((visibility("hidden"))) /* on declarations: accessed without the GOT */

#define array_size(a) (sizeof(a) / sizeof((a)[0]))

/* Relaxed accesses, one load or store each, to words that other threads write as well. They order nothing. */
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

/* The index of the highest set bit; n must not be 0. */
static inline unsigned log2_floor(uint64_t n)
{
    return 63 - (unsigned)__builtin_clzll(n);
}

/*
 * Assertions are compiled in with -Dchecking=true only, and check invariants of the allocator. Errors of the
 * user's program are reported in every build, by misuse_report().
 */
_Noreturn void sheaf_assert_failed(const char *what, const char *file, int line);
#ifdef SHEAF_CHECKING
#define sheaf_assert(x) (likely(x) ? (void)0 : sheaf_assert_failed(#x, __FILE__, __LINE__))
#else
#define sheaf_assert(x) ((void)sizeof(x))
#endif

/*
 * Before and after a call: the value is in a register or on the stack meanwhile, and the compiler does not compute it
 * again from another one. The leak scan then finds an address that the program is about to get
 * (diagnostics/leak/roots.h).
 */
#define keep_visible(value) __asm__ volatile("" : "+r"(value))

#endif
