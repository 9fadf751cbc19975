/*
 * Size classes: 8 bytes, then steps of 16 up to 128, then eight for each doubling up to 32 KiB. Above 128 bytes at
 * most a ninth of an object is wasted. Requests of up to 8 bytes get 8-byte alignment (no object that fits needs
 * more), all others at least 16.
 */
#ifndef SHEAF_MALLOC_CLASSES_H
#define SHEAF_MALLOC_CLASSES_H

#include "cache/kmem_cache.h"

#define CLASSES     CACHE_CLASSES
#define CLASS_MOST  32768         /* larger requests are large blocks */
#define SMALL_MOST  TWO_ENDS_MOST /* larger requests go to classes with LIFO words */
#define CLASS_FIRST CACHE_FIRST

/*
 * Sets the base addresses of the fast paths, from which they find everything else (struct slot_head and the table
 * of classes): rseq_roots.cid_base where the slot is mm_cid, cpu_base where it is cpu_id. Until then, and
 * permanently without libc's rseq, both point to a head whose limits send every call to the slow path. cxx_base is
 * cid_base for those C++ operators that call other operators, which the program may replace; it is set once none
 * was found to be replaced (preload/cxx.c). Two threads may run this at once.
 */
void fast_enable(void);

/*
 * The table of classes: for each size of a request, the offset of its class's words. It lies in slot 0 at
 * CLASS_TABLE_AT, in the same page as malloc's words.
 */
struct class_table {
    uint16_t small[SMALL_MOST + 1];
    uint16_t large[CLASS_MOST / 128 + 1]; /* by (size + 127) / 128 */
};
_Static_assert(CLASS_TABLE_AT + sizeof(struct class_table) == CLASS_TABLE_END, "as slot/page.h says");

static inline const struct slot_head *fast_head(uintptr_t base)
{
    return (const struct slot_head *)base;
}
static inline const struct class_table *class_table(uintptr_t base)
{
    return (const struct class_table *)(base + CLASS_TABLE_AT);
}

/* The number of the cache for a request of n bytes, from 0 to CLASS_MOST. */
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
 * Set once the cache of the class is ready. The cache itself would show that as well, but a page of caches that is
 * read before it is written costs two page faults.
 */
extern hidden bool class_ready[CLASS_FIRST + CLASSES];

/* The cache of a class; sets it up on first use. */
struct kmem_cache *class_cache(unsigned number);

#endif
