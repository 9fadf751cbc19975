/*
 * Size classes: which there are says the table cache/slot/spacing.def. Requests of up to 8 bytes get 8-byte alignment
 * (no object that fits needs more), all others at least 16.
 */
#ifndef SHEAF_MALLOC_CLASSES_H
#define SHEAF_MALLOC_CLASSES_H

#include "cache/kmem_cache.h"

#define CLASSES     CACHE_CLASSES
#define SMALL_MOST  TWO_ENDS_MOST /* larger requests go to classes with LIFO words */
#define CLASS_FIRST CACHE_FIRST
_Static_assert(CLASS_MOST <= OBJECT_MOST, "a slab can hold objects of each class");

/* Fills the table of classes (struct class_table). Two threads may run this at once. */
void classes_start(void);

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
    uint16_t large[CLASS_TABLE_LARGE]; /* by class_large() */
};
_Static_assert(CLASS_TABLE_AT + sizeof(struct class_table) == CLASS_TABLE_END, "as cache/slot/page.h says");

static inline const struct slot_head *fast_head(uintptr_t base)
{
    return (const struct slot_head *)base;
}
static inline const struct class_table *class_table(uintptr_t base)
{
    return (const struct class_table *)(base + CLASS_TABLE_AT);
}

/* Where the table has a request of n bytes, which is more than SMALL_MOST. */
static inline size_t class_large(size_t n)
{
    return (n + LARGE_STEP - 1) / LARGE_STEP;
}

/* The word of the class for a request of n bytes: of up to SMALL_MOST, and of more. */
static inline struct word_id class_small_word(uintptr_t base, size_t n)
{
    return (struct word_id){class_table(base)->small[n]};
}
static inline struct word_id class_large_word(uintptr_t base, size_t n)
{
    return (struct word_id){class_table(base)->large[class_large(n)]};
}

/* The number of the cache for a request of n bytes, from 0 to CLASS_MOST. */
static inline unsigned class_number(size_t n)
{
    return word_id_number(n <= SMALL_MOST ? class_small_word(space.base, n) : class_large_word(space.base, n));
}

/*
 * Set once the cache of the class is ready. The cache itself would show that as well, but a page of caches that is
 * read before it is written costs two page faults.
 */
extern hidden bool class_ready[CLASS_FIRST + CLASSES];

/* The cache of a class; sets it up on first use. */
struct kmem_cache *class_cache(unsigned number);

#endif
