/* What the tests do with memory: patterns that name their owner, and values the compiler cannot see through. */
#ifndef BLOCK_H
#define BLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Hides from the compiler where a pointer or a size comes from, so that no call is folded and no misuse warned of. */
static inline void *opaque(const void *p)
{
    __asm__ volatile("" : "+r"(p) : : "memory");
    return (void *)p;
}

static inline size_t hidden(size_t n)
{
    __asm__ volatile("" : "+r"(n));
    return n;
}

static inline uint64_t random_next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline size_t random_below(uint64_t *state, size_t limit)
{
    return (size_t)(random_next(state) % limit);
}

static inline unsigned char stamp_byte(uint64_t key, size_t at)
{
    return (unsigned char)((key + at * 0x9e3779b97f4a7c15u) >> 56);
}

/* Every byte of [from, to) gets a value that follows from key and position. */
static inline void stamp_range(void *p, size_t from, size_t to, uint64_t key)
{
    for (size_t i = from; i < to; i++)
        ((unsigned char *)p)[i] = stamp_byte(key, i);
}

static inline bool stamp_range_holds(const void *p, size_t from, size_t to, uint64_t key)
{
    for (size_t i = from; i < to; i++)
        if (((const unsigned char *)p)[i] != stamp_byte(key, i))
            return false;
    return true;
}

#define STAMP_EDGE 256
#define STAMP_WHOLE 2048
#define STAMP_STEP 1024

/* Small blocks wholly; of larger ones both edges and a byte in every step, which touches every page. */
static inline void stamp(void *p, size_t size, uint64_t key)
{
    if (size <= STAMP_WHOLE) {
        stamp_range(p, 0, size, key);
        return;
    }
    stamp_range(p, 0, STAMP_EDGE, key);
    for (size_t i = STAMP_EDGE; i < size; i += STAMP_STEP)
        stamp_range(p, i, i + 1, key);
    stamp_range(p, size - STAMP_EDGE, size, key);
}

/* True when the first `size` bytes of a block stamped with `stamped` bytes are as they were. */
static inline bool stamp_holds_to(const void *p, size_t size, size_t stamped, uint64_t key)
{
    if (stamped <= STAMP_WHOLE)
        return stamp_range_holds(p, 0, size < stamped ? size : stamped, key);
    if (!stamp_range_holds(p, 0, size < STAMP_EDGE ? size : STAMP_EDGE, key))
        return false;
    for (size_t i = STAMP_EDGE; i < stamped && i < size; i += STAMP_STEP)
        if (!stamp_range_holds(p, i, i + 1, key))
            return false;
    return size < stamped || stamp_range_holds(p, stamped - STAMP_EDGE, stamped, key);
}

static inline bool stamp_holds(const void *p, size_t size, uint64_t key)
{
    return stamp_holds_to(p, size, size, key);
}

static inline bool all_zero(const void *p, size_t size)
{
    const unsigned char *bytes = p;
    return size == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, size - 1) == 0);
}

static inline bool is_aligned(const void *p, size_t alignment)
{
    return ((uintptr_t)p & (alignment - 1)) == 0;
}

/* Bytes resident now. */
size_t resident_bytes(void);

#endif
