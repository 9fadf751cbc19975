/*
 * Functions for all benchmark programs. None of them calls malloc before or during the timed part: scratch() uses
 * mmap, and results are printed with dprintf.
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

/* The resources used by this process, without its children. */
struct usage usage_now(void);
struct usage usage_since(struct usage before);

/*
 * The value in KiB of a key in a file, such as "VmHWM:" in /proc/self/status or "Rss:" in /proc/self/smaps_rollup.
 * Returns 0 if the kernel has no such file or key. It replaces ru_maxrss, which a process started by vfork inherits
 * from its parent.
 */
uint64_t proc_kib(const char *file, const char *key);

/* Resident memory of this process in KiB. */
uint64_t resident_kib(void);

/* Zeroed and populated memory that does not come from the allocator under test. Exits if there is none. */
void *scratch(size_t bytes);

/* The file of the object whose malloc this process calls, or "unknown". */
const char *allocator_path(void);

void sort_doubles(double *values, unsigned count);
double median_of_sorted(const double *values, unsigned count);

/* Prints "PROGRAM: MESSAGE" as one line to standard error and exits with status 1. */
_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Parses a decimal integer from 1 to `most`. Otherwise calls fail() with a message that names the option. */
uint64_t number_argument(const char *option, const char *text, uint64_t most);

/* Returns p, but hides from the compiler where p came from and what it points to. */
static inline void *opaque(void *p)
{
    __asm__ volatile("" : "+r"(p) : : "memory");
    return p;
}

/* Allocates an object and writes its first word. `size` is at least 8. Exits if there is no memory. */
static inline void *take(size_t size)
{
    void *p = opaque(malloc(size));
    if (__builtin_expect(p == NULL, 0))
        fail("no memory for %zu bytes; use a smaller --ops or a larger machine", size);
    *(uint64_t *)p = size;
    return p;
}

static inline void give(void *p)
{
    free(opaque(p));
}

/* Reads an object from take(), as a program reads an object from another thread. NULL is ignored. */
static inline void look(const void *p)
{
    if (p != NULL && __builtin_expect(*(const volatile uint64_t *)p < 8, 0))
        fail("a live object was overwritten; the allocator may have allocated it twice");
}

/* xorshift64*: takes a few instructions and gives every contestant the same sequence. */
static inline uint64_t random_next(uint64_t *state)
{
    uint64_t x = *state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return x * 0x2545F4914F6CDD1DULL;
}

/* A size from 16 to 4096: half are at most 32, and each doubling is half as likely as the one before. */
static inline size_t random_small_size(uint64_t *state)
{
    uint64_t r = random_next(state) >> 16;
    unsigned doublings = (unsigned)__builtin_ctzll(r | 256);
    size_t size = 16 + ((r >> 9) & ((16U << doublings) - 1));
    return size < 4096 ? size : 4096;
}

#endif
