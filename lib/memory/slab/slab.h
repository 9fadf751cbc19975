/*
 * Slabs: spans of slices that are divided into objects of one cache. Their descriptors lie apart from the memory.
 *
 * A descriptor has a bit for each object, set while the object is returned. Objects from `mark` up were never
 * handed out (in the order of addresses, or in that of the cache's permutation: memory/slab/shuffle.h). Hence
 *     free = set bits + (objects - mark)
 * and nothing is ever written into a free object. Slabs with free objects are on lists of their cache by how full
 * they are; a full slab is on none. Refills take from the fullest slabs, so that nearly empty ones drain.
 *
 * The cache's lock protects its lists and the descriptors of its slabs. Code that holds it or the region's lock
 * does not take the other, except to fork. An object is "out" if it is not free here: the user, a sheaf or a barn
 * has it.
 */
#ifndef SHEAF_SLAB_SLAB_H
#define SHEAF_SLAB_SLAB_H

#include "memory/space/locks.h"
#include "memory/region/region.h"
#include "memory/slab/shuffle.h"

#define OBJECT_MOST   32768 /* bytes of an object of any cache */
#define SMALL_HEAP    64u   /* slices of all slabs, 4 MiB: a smaller heap is not examined for sparse caches */
#define SLAB_QUARTERS 4     /* list 0 holds the fullest slabs */
#define SLAB_EMPTIEST (SLAB_QUARTERS - 1)
#define SLAB_HOLES    SLAB_QUARTERS /* the last list holds slabs with holes (memory/slab/holes.h) */
#define SLAB_LISTS    (SLAB_QUARTERS + 1)
#define SLAB_UNLISTED 0xff
#define SLAB_BATCH    512 /* the most objects that one call moves */

struct slab {
    uint32_t next, prev; /* neighbours in the list, as references; 0 for none */
    uint32_t slice;      /* the first slice */
    uint32_t returned;   /* set bits */
    uint32_t mark;       /* positions from here up were never handed out */
    uint32_t reference;  /* of this descriptor */
    uint16_t cache;      /* number of the cache */
    uint16_t words;      /* words of bits */
    uint8_t list;        /* below SLAB_LISTS, or SLAB_UNLISTED */
    uint8_t touched;     /* during a flush: the slab is already in the chain */
    uint8_t busy;        /* on no list, because its free pages are being returned to the system */
    uint8_t
        holes; /* objects out when its free pages were returned; 0 if they were not, or objects were taken since */
    uint32_t first_word; /* words below this have no bit set */
    uint32_t chain;      /* during a flush: the next slab to be settled, or to be released */
    uint32_t start;      /* where it starts in the cache's permutation, if there is one */
    uint32_t committed;  /* bytes from its start that were committed; counts only where memory is staged
                            (platform/os/vm.h) */
    uint32_t unused[3];
    uint64_t bits[];
};
_Static_assert(sizeof(struct slab) == 64, "descriptors are cut in multiples of 64 bytes");

struct slab_cache;

/* A cache, as far as slabs are concerned. */
struct slab_cache {
    struct lock *lock;   /* the lock of the cache's number; set before `size`, never changes */
    uint32_t size;       /* bytes from one object to the next */
    uint32_t objects;    /* objects in a slab */
    uint16_t slices;     /* slices in a slab */
    uint16_t number;     /* number of the cache */
    uint16_t lead;       /* bytes from an object's start to the pointer that the constructor gets */
    uint16_t watched;    /* hooks.slab_created and slab_released are called for its slabs */
    uint64_t reciprocal; /* index = offset * reciprocal >> 40, exact for offsets below 2^18 */
    uint32_t lists[SLAB_LISTS];
    /* Written under the lock: */
    uint32_t slabs;
    uint32_t empty; /* slabs with nothing out that are kept for the next refill */
    uint64_t free;  /* free objects in all slabs */
    uint64_t alloc_slab, free_slab, add_partial, remove_partial;
    uint32_t missed; /* slabs with holes from which objects were taken since the last slab_holes() */
    uint32_t holes;  /* slabs that got holes then */
    uint32_t wait;   /* calls of slab_holes() to skip, as most of those slabs were used again; `waited` have been */
    uint32_t waited;
    void (*ctor)(void *);
    struct shuffle *shuffle; /* the order of new objects; NULL: by address. Set before `size`, stays */
    uint16_t id;             /* the entry of its slices in the table of ids; set before `size` */
    uint8_t node;            /* memory node, by index */
    bool typesafe;           /* slabs are freed after a grace period: memory/slab/retire.h */
};

enum slab_fault { SLAB_OK, SLAB_DOUBLE_FREE, SLAB_INTERIOR };

/* The error that a flush found; it stops there. */
struct slab_report {
    enum slab_fault fault;
    void *object;
};

/*
 * Set what follows from the size, which is a multiple of the alignment: slabs have 64 KiB for objects of up to 8
 * KiB, 256 KiB above. The caller stores `size` itself last, as the sign that the cache is ready. Two threads may
 * run this at once for the same cache.
 */
void slab_cache_init(struct slab_cache *cache, unsigned number, uint32_t size);

/*
 * Make new objects come in random order. Must be called after slab_cache_init() and before the cache has a slab.
 * Two threads may run this at once for the same cache.
 */
void slab_cache_shuffle(struct slab_cache *cache, uint32_t size);

/* Free what slab_cache_shuffle() allocated; the cache has no slab left. */
void slab_cache_forget(struct slab_cache *cache);

/*
 * Take up to `want` (at most SLAB_BATCH) objects, with the lowest address last, so that a LIFO hands them out in
 * order. Returns their number. It is less than `want` when there is no memory or in a signal handler that
 * interrupted the lock's holder. The caller holds neither the cache's lock nor the region's. Constructors run
 * without any lock.
 */
unsigned slab_take(struct slab_cache *cache, void **objects, unsigned want);

/* The same with the lowest address first. */
unsigned slab_take_ascending(struct slab_cache *cache, void **objects, unsigned want);

/* The same, but only from existing slabs, and only if the lock is free: for caches of another node. */
unsigned slab_try_take(struct slab_cache *cache, void **objects, unsigned want);

/*
 * Give objects back, in any order. Each is checked: at the first error the rest stays out and *report describes
 * it. Slabs that become empty are released, except for one if the cache is likely to need it. Returns false, with
 * nothing done, in a signal handler that interrupted the lock's holder. The caller holds neither the cache's lock
 * nor the region's.
 */
bool slab_put(struct slab_cache *cache, void *const *objects, unsigned n, struct slab_report *report);

/* Release all empty slabs. The caller holds neither the cache's lock nor the region's. */
void slab_shrink(struct slab_cache *cache);

/*
 * Find the object that `p` lies in: the first slice of its slab, and its index. `p` must lie in a slab of the
 * cache. Returns false if it is beyond the last object.
 */
bool slab_locate(const struct slab_cache *cache, const void *p, uint32_t *slice, uint32_t *index);

/* The start of the object that `p` lies in. `p` must lie in a slab of the cache. */
void *slab_object(const struct slab_cache *cache, const void *p);

/* Bytes from `p` to the end of its object. */
size_t slab_room(const struct slab_cache *cache, const void *p);

/* Objects out; exact while no thread uses the cache. */
uint64_t slab_out(const struct slab_cache *cache);

/* Whether an object, given by its start, is free in its slab; for reports. */
bool slab_is_free(const struct slab_cache *cache, const void *p);

/* For the checking build and tests: abort unless the cache's lists and counts agree with its descriptors. */
void slab_check(struct slab_cache *cache);

#endif
