/*
 * Size classes: 8, then steps of 16 to 128, then eight for each doubling to 32 KiB. At most one part in nine is
 * wasted above 128 bytes. Requests up to 8 bytes get 8-byte alignment (no object that fits needs more), all others 16
 * at least.
 */
#ifndef SHEAF_MALLOC_CLASSES_H
#define SHEAF_MALLOC_CLASSES_H

#include "cache/kmem_cache.h"

#define CLASSES     73
#define CLASS_MOST  32768 /* larger requests are runs of units */
#define TABLE_MOST  1024  /* up to here by table, above by counting bits */
#define CLASS_FIRST CACHE_FIRST

/* Constant expressions, so that the table needs no initialisation. n from 1 to CLASS_MOST. */
#define CLASS_LOG(n) (31 - __builtin_clz((n) <= 128 ? 128u : (unsigned)(n)-1))
#define CLASS_INDEX(n)                                                                                               \
    ((n) <= 8     ? 0                                                                                                \
     : (n) <= 128 ? ((n) + 15) / 16                                                                                  \
                  : 9 + (CLASS_LOG(n) - 7) * 8 + ((((int)(n)-1) >> (CLASS_LOG(n) - 3)) & 7))

/* By (n + 7) / 8: what malloc's fast path looks up, the offset of the class's words in a slot. */
extern const uint16_t class_ids[TABLE_MOST / 8 + 1];

static inline unsigned class_number(size_t n)
{
    return n <= TABLE_MOST ? class_ids[(n + 7) >> 3] >> 4u : CLASS_FIRST + (unsigned)CLASS_INDEX((int)n);
}

static inline uint32_t class_size(unsigned number)
{
    unsigned index = number - CLASS_FIRST;
    if (index <= 8)
        return index ? index * 16 : 8;
    unsigned log = 7 + (index - 9) / 8;
    return (1u << log) + ((((index - 9) & 7) + 1) << (log - 3));
}

/* The cache of a class, set up when it is first used. */
struct kmem_cache *class_cache(unsigned number);

#endif
