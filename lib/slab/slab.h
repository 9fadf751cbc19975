/*
 * Slabs: runs of units cut into objects of one cache, described beside the memory.
 *
 * A descriptor has a bit for each object that was given back; objects from `mark` up were never handed out (in order
 * of address, or in that of the cache's permutation: slab/shuffle.h). So
 *     free = set bits + (objects - mark)
 * and nothing is ever written into a free object. Slabs with something free are on one of a list of their
 * cache by how full they are; a full slab is on none. Refill takes from the fullest, so that nearly empty ones drain.
 *
 * One lock for each cache protects its lists and all descriptors of its slabs. It is never held together with the
 * region's. An object "out" is one that is not free here: with the user, in a sheaf or in a barn.
 */
#ifndef SHEAF_SLAB_SLAB_H
#define SHEAF_SLAB_SLAB_H

#include "space/locks.h"
#include "region/region.h"
#include "slab/shuffle.h"

#define SMALL_HEAP    64u /* units of all slabs, 4 MiB: below, nobody asks which objects keep slabs from going back */
#define SLAB_QUARTERS 4   /* list 0 holds the fullest, */
#define SLAB_EMPTIEST (SLAB_QUARTERS - 1)
#define SLAB_HOLES    SLAB_QUARTERS /* and the last one those whose free pages went back (slab/holes.h) */
#define SLAB_LISTS    (SLAB_QUARTERS + 1)
#define SLAB_UNLISTED 0xff
#define SLAB_BATCH    512 /* the most objects that one call moves */

struct slab {
    uint32_t next, prev; /* neighbours in the list; references, 0 for none */
    uint32_t unit;       /* the first */
    uint32_t returned;   /* set bits */
    uint32_t mark;       /* positions from here up were never handed out */
    uint32_t reference;  /* of this descriptor */
    uint16_t cache;      /* number of the cache */
    uint16_t words;      /* of bits */
    uint8_t list;        /* below SLAB_LISTS, or SLAB_UNLISTED */
    uint8_t touched;     /* during a flush: its list is to be looked at again */
    uint8_t busy;        /* on no list, because its free pages are being given back */
    uint8_t holes;       /* objects out when its free pages went back; 0: they did not, or it changed since */
    uint32_t first_word; /* no bit is set in words below */
    uint32_t chain;      /* during a flush: the next slab that was touched, or that goes back */
    uint32_t start;      /* in the cache's permutation, where it has one */
    uint32_t unused[4];
    uint64_t bits[];
};
_Static_assert(sizeof(struct slab) == 64, "descriptors are cut in multiples of 64 bytes");

struct slab_cache;

/* What the slab layer knows of a cache. */
struct slab_cache {
    struct lock *lock;   /* of the cache's number; set before `size`, stays */
    uint32_t size;       /* bytes from one object to the next */
    uint32_t objects;    /* in one slab */
    uint16_t units;      /* of one slab */
    uint16_t number;     /* of the cache */
    uint16_t lead;       /* from an object's start to what the constructor gets */
    uint16_t watched;    /* hooks.slab_created and slab_released are called for its slabs */
    uint64_t reciprocal; /* index = offset * reciprocal >> 40, exact for offsets below 2^18 */
    uint32_t lists[SLAB_LISTS];
    /* written under the lock */
    uint32_t slabs;
    uint32_t empty; /* slabs with nothing out, kept for the next refill */
    uint64_t free;  /* objects free in all slabs */
    uint64_t alloc_slab, free_slab, add_partial, remove_partial;
    uint32_t missed; /* slabs with holes that something was taken from, since the last look */
    uint32_t holes;  /* slabs that were given holes then */
    uint32_t wait;   /* looks to leave out, because most of them were missed */
    uint32_t waited;
    void (*ctor)(void *);
    struct shuffle *shuffle; /* the order of fresh objects; NULL: by address. Set before `size`, stays */
    uint16_t id;             /* what the table of ids says of its units; set before `size` */
    uint8_t node;            /* memory node, by index */
    bool typesafe;           /* slabs go back after a grace period: slab/retire.h */
};

enum slab_fault { SLAB_OK, SLAB_DOUBLE_FREE, SLAB_INTERIOR };

/* What a flush found wrong; it stops there. */
struct slab_report {
    enum slab_fault fault;
    void *object;
};

/*
 * What follows from the size, a multiple of the alignment: slabs are of 64 KiB up to 8 KiB objects, of 256 KiB above.
 * `size` itself is for the caller to store, last: it tells others that the cache is there. Two threads may do it at
 * once.
 */
void slab_cache_init(struct slab_cache *cache, unsigned number, uint32_t size);

/* From now on fresh objects come in random order; after slab_cache_init(), before the cache has a slab. Two threads
 * may do it at once. */
void slab_cache_shuffle(struct slab_cache *cache, uint32_t size);

/* Give back what that took; no slab is left. */
void slab_cache_forget(struct slab_cache *cache);

/*
 * Take up to `want` (at most SLAB_BATCH) objects out, the lowest address last, so that a LIFO hands them out in
 * order. Fewer only when there is no memory. No lock held on entry or exit.
 */
unsigned slab_take(struct slab_cache *cache, void **objects, unsigned want);

/* The same for who uses them from the first on: the lowest address first. */
unsigned slab_take_ascending(struct slab_cache *cache, void **objects, unsigned want);

/* The same from slabs at hand, and only when the lock is free now: for caches of another node. */
unsigned slab_try_take(struct slab_cache *cache, void **objects, unsigned want);

/*
 * Give objects back, any order; they are checked. Slabs that become empty go back to the region but for one.
 * False: not possible now (a signal handler over the lock's holder), nothing was done.
 */
bool slab_give(struct slab_cache *cache, void *const *objects, unsigned n, struct slab_report *report);

/* Give all empty slabs back to the region. */
void slab_shrink(struct slab_cache *cache);

/* Which object of which slab (its first unit) `p` lies in, which must belong to a slab of the cache; false: behind
 * its last object. */
bool slab_locate(const struct slab_cache *cache, const void *p, uint32_t *unit, uint32_t *index);

/* The start of the object that `p` lies in, which must belong to a slab of the cache. */
void *slab_object(const struct slab_cache *cache, const void *p);

/* Bytes from p to the end of that object. */
size_t slab_room(const struct slab_cache *cache, const void *p);

/* Objects out, exact when the cache is quiet. */
uint64_t slab_out(const struct slab_cache *cache);

/* Whether an object at an exact address is free in its slab; for reports. */
bool slab_is_free(const struct slab_cache *cache, const void *p);

/* Checking build and tests: the lists and counts of the cache agree with its descriptors. */
void slab_check(struct slab_cache *cache);

#endif
