/*
 * Size classes: 8, then steps of 16 to 128, then eight for each doubling to 32 KiB. At most one part in nine is
 * wasted above 128 bytes. Requests up to 8 bytes get 8-byte alignment (no object that fits needs more), all others 16
 * at least.
 */
#ifndef SHEAF_MALLOC_CLASSES_H
#define SHEAF_MALLOC_CLASSES_H

#include "cache/kmem_cache.h"

#define CLASSES     73
#define CLASS_MOST  32768         /* larger requests are runs of units */
#define SMALL_MOST  TWO_ENDS_MOST /* up to here by the table of small sizes, above, with LIFO words, by the other */
#define CLASS_FIRST CACHE_FIRST

/*
 * rseq_roots.cid_base and its neighbours are where base is, for the fast paths: they find all they need from there
 * (struct slot_head, the table). Where the slot is mm_cid, cid_base is set, where it is cpu_id, cpu_base is. Until
 * the first initialisation, and for ever without libc's rseq, they point to a head whose limits make every call take
 * the slow path. cxx_base is cid_base for those C++ operators that lead to other operators, which the program may
 * replace; it is set once none is found replaced (preload/cxx.c).
 */
void fast_enable(void);

/* In slot 0, at CLASS_TABLE_AT, in one page with malloc's words: which of them a request goes to. */
struct class_table {
    uint16_t small[SMALL_MOST + 1];
    uint16_t large[CLASS_MOST / 128 + 1]; /* by (size + 127) / 128 */
};

static inline const struct slot_head *fast_head(uintptr_t base)
{
    return (const struct slot_head *)base;
}
static inline const struct class_table *class_table(uintptr_t base)
{
    return (const struct class_table *)(base + CLASS_TABLE_AT);
}

/* The number of the class's cache; n from 0 to CLASS_MOST. */
static inline unsigned class_number(size_t n)
{
    unsigned request = (unsigned)n;
    if (request <= 8)
        return CLASS_FIRST;
    if (request <= 128)
        return CLASS_FIRST + (request + 15) / 16;
    unsigned log = 31 - (unsigned)__builtin_clz(request - 1);
    return CLASS_FIRST + 9 + (log - 7) * 8 + ((request - 1) >> (log - 3) & 7);
}

static inline uint32_t class_size(unsigned number)
{
    unsigned index = number - CLASS_FIRST;
    if (index <= 8)
        return index ? index * 16 : 8;
    unsigned log = 7 + (index - 9) / 8;
    return (1u << log) + ((((index - 9) & 7) + 1) << (log - 3));
}

/*
 * Set once the cache of the class is set up. The cache itself would tell as well, but a page of them that is read
 * before it is written costs two faults.
 */
extern hidden bool class_ready[CLASS_FIRST + CLASSES];

/* The cache of a class, set up when it is first used. */
struct kmem_cache *class_cache(unsigned number);

#endif
