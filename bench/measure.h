/*
 * What every benchmark program needs around its timed part. Nothing here calls malloc before or during it: scratch
 * memory comes from mmap, results are printed by dprintf.
 */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include <stdint.h>
#include <stdlib.h>

struct usage {
    uint64_t minor_faults;
    uint64_t major_faults;
    uint64_t user_us;
    uint64_t system_us;
};

uint64_t now_ns(void);

/* Of this process; without its children. */
struct usage usage_now(void);
struct usage usage_since(struct usage before);

/*
 * A value in KiB by its key, such as "VmHWM:" in /proc/self/status or "Rss:" in /proc/self/smaps_rollup; 0 where the
 * kernel has no such file. ru_maxrss would not do: a process that was started through vfork inherits its parent's.
 */
uint64_t proc_kib(const char *file, const char *key);

/* Resident memory of this process. */
uint64_t resident_kib(void);

/* Zeroed memory, already faulted in, that the allocator under test knows nothing of. */
void *scratch(size_t bytes);

/* The file of the object whose malloc this process calls, to be printed beside the figures. */
const char *allocator_path(void);

void sort_doubles(double *values, unsigned count);
double median_of_sorted(const double *values, unsigned count);

/* Prints "PROGRAM: ..." as one line and exits with 1. */
_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A whole decimal number from 1 to `most`; fails with one line that names the option otherwise. */
uint64_t number_argument(const char *option, const char *text, uint64_t most);

/* The compiler may no longer assume anything about where p came from, nor about what it points to. */
static inline void *opaque(void *p)
{
    __asm__ volatile("" : "+r"(p) : : "memory");
    return p;
}

/* One allocation, written to as a program would. `size` is 8 or more. */
static inline void *take(size_t size)
{
    void *p = opaque(malloc(size));
    if (__builtin_expect(p == NULL, 0))
        fail("no memory for %zu bytes; run with fewer --ops or on a larger machine", size);
    *(uint64_t *)p = size;
    return p;
}

static inline void give(void *p)
{
    free(opaque(p));
}

/* Looks at an object from take(), as a program does with what another thread hands it; NULL is passed over. */
static inline void look(const void *p)
{
    if (p != NULL && __builtin_expect(*(const volatile uint64_t *)p < 8, 0))
        fail("an object in use was overwritten; the allocator gave it away twice");
}

/* xorshift64*: a few instructions a number, the same sequence for every contestant. */
static inline uint64_t random_next(uint64_t *state)
{
    uint64_t x = *state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return x * 0x2545F4914F6CDD1DULL;
}

/* 16 to 4096, half of them at most 32, each doubling half as likely as the one before. */
static inline size_t random_small_size(uint64_t *state)
{
    uint64_t r = random_next(state) >> 16;
    unsigned doublings = (unsigned)__builtin_ctzll(r | 256);
    size_t size = 16 + ((r >> 9) & ((16U << doublings) - 1));
    return size < 4096 ? size : 4096;
}

#endif
