/*
 * The descriptor of a cache.
 *
 * Conservation, at a quiet moment, for every cache (cache_check() in process/census.h asserts it):
 *     objects out of slabs = in use + in the sheaves of slots + in barns + in prefilled sheaves + in the reserve
 *                            + waiting in quarantine
 * and in use = with the user + waiting for a grace period.
 *
 * A descriptor is written by cache_setup(), which stores slab.size last: a cache whose size is not 0 is complete.
 * The comments below name the members that change afterwards.
 */
#ifndef SHEAF_CACHE_KMEM_CACHE_H
#define SHEAF_CACHE_KMEM_CACHE_H

#include "cache/ops.h"
#include "platform/config/config.h"
#include "platform/os/hooks.h"
#include "sheaf/kmem_cache.h"
#include "memory/slab/slab.h"
#include "cache/slot/barn.h"
#include "cache/slot/slot.h"

#define CAPACITY_START 13 /* of a slot's first sheaves; they grow while there is traffic */

struct kmem_cache {
    struct slab_cache slab; /* slab.size 0: this number is not in use */
    char name[32];
    uint32_t object_size; /* may grow when another cache is merged into this one (cache/kmem/alias.c) */
    uint32_t align;
    uint32_t barn_least, barn_most; /* objects: the limit of a barn moves between these */
    uint16_t capacity;              /* the most that a sheaf may hold; 0: no sheaves */
    uint16_t number;                /* see cache_at() */
    uint16_t home;                  /* number of the first sibling (cache/node/node.h); its own if it has none */
    uint16_t instruments; /* not 0: a feature handles each object. Bits of diagnostics/feature/instrument.h. Implies
                             capacity 0, so that the words stay 0 and each operation is a slow path */
    uint8_t nodes;        /* siblings; 0: the cache serves all memory nodes */
    bool capacity_fixed;  /* sheaves have their full capacity from the start */
    bool lifo;            /* the format of its words (cache/slot/slot.h); by object size */
    slab_flags_t flags;   /* as created */
    uint64_t inherited;   /* objects in use when this process was forked */
    uint64_t inherited_prefilled; /* in prefilled sheaves then, when the counters began anew */
    uint64_t inherited_rcu;       /* waiting for a grace period then */
    uint64_t alloc_fail;          /* allocations that failed; added to by any thread */
    uint64_t waiting;             /* objects freed but kept back by a feature; added to by any thread */
    uint32_t sparse_since;        /* clock_ms() at the first step of decay that found it sparse; 0: it is not.
                                     Remote drain lock */
    _Atomic uint32_t reserved;    /* objects in the standing reserve */
    const struct cache_ops *ops;  /* what features changed; NULL: nothing. Read it by cache_op() */
} cache_aligned;

extern hidden bool cache_layer_ready; /* set by process/start.c once caches can be used */
extern hidden unsigned cache_top;     /* no number from here up was ever in use; only grows */

/* The objects and carriers of a standing reserve (cache/kmem/reserve.c). */
struct reserve {
    struct sheaf_stack filled, empty;
    _Atomic uint32_t size; /* number of carriers, hence of objects to hold */
};

static inline struct push_id cache_push_id(const struct kmem_cache *cache)
{
    return (struct push_id){cache->slab.id};
}

/*
 * The tables of caches are divided, because a process is charged for writable memory where overcommit is off. Those
 * of the first COUNTER_GROUP numbers, which are malloc's, are variables. The others are rows in the space, which are
 * only readable until cache_reach(). The first COUNTER_GROUP rows hold only the barns of malloc's caches for domains
 * beyond the first, which slot_domain() makes writable with the second domain.
 */
struct cache_tables {
    struct kmem_cache cache;
    struct cache_ops ops cache_aligned;
    struct barn barns[DOMAINS];
    struct reserve reserve cache_aligned; /* malloc's caches have none */
};
_Static_assert(sizeof(struct cache_tables) == CACHE_ROW, "the space has room for the rows");

extern hidden struct kmem_cache caches_first[COUNTER_GROUP];
extern hidden struct barn barns_first[COUNTER_GROUP]; /* of the first domain */

static inline struct cache_tables *cache_tables_of(unsigned number)
{
    return (struct cache_tables *)(void *)(space.caches + (size_t)number * CACHE_ROW);
}

/* The cache with a number below CACHE_MAX, in use or not. */
static inline struct kmem_cache *cache_at(unsigned number)
{
    return likely(number < COUNTER_GROUP) ? &caches_first[number] : &cache_tables_of(number)->cache;
}

/* The barn of a cache, of malloc's or not, for a domain. */
struct barn *cache_barn_row(const struct kmem_cache *cache, unsigned domain);
static inline struct barn *cache_barn(const struct kmem_cache *cache, unsigned domain)
{
    unsigned number = cache->number;
    return likely(number < COUNTER_GROUP && !domain) ? &barns_first[number] : cache_barn_row(cache, domain);
}

static inline bool cache_in_use(const struct kmem_cache *cache)
{
    return __atomic_load_n(&cache->slab.size, __ATOMIC_ACQUIRE) != 0;
}

/* Whether the cache is a size class of malloc, or a sibling of one. */
static inline bool cache_is_class(const struct kmem_cache *cache)
{
    return cache->home < CACHE_GAP;
}

/* The barn for the calling thread: that of its domain, or of the cache's own memory node. */
static inline struct barn *cache_barn_here(const struct kmem_cache *cache)
{
    __typeof__(cache->ops->barn) barn = cache_op(cache, barn);
    return unlikely(barn != NULL) ? barn(cache, slot_current()) : cache_barn(cache, slot_domain());
}

/* Whether the standing reserve lacks objects. */
static inline bool cache_is_short(const struct kmem_cache *cache)
{
    __typeof__(cache->ops->is_short) is_short = cache_op(cache, is_short);
    return unlikely(is_short != NULL) && is_short(cache);
}

/* Put a raw free object into the reserve if that is short. Returns false if it was not needed there. */
static inline bool cache_absorb(struct kmem_cache *cache, void *object)
{
    __typeof__(cache->ops->absorb) absorb = cache_op(cache, absorb);
    return unlikely(absorb != NULL) && cache_is_short(cache) && absorb(cache, object);
}

/* Put one object from the slabs into the reserve. */
static inline void cache_top_up(struct kmem_cache *cache)
{
    __typeof__(cache->ops->top_up) top_up = cache_op(cache, top_up);
    if (top_up)
        top_up(cache);
}

/* Tell a feature that n allocations on the slot have been added to the counters. */
static inline void cache_counted(const struct kmem_cache *cache, unsigned slot, uint32_t n)
{
    __typeof__(cache->ops->counted) counted = cache_op(cache, counted);
    if (unlikely(counted != NULL))
        counted(cache, slot, n);
}

/* Whether slow paths may attach sheaves to slots. */
static inline bool cache_has_sheaves(const struct kmem_cache *cache)
{
    return cache->capacity && likely(!cache_is_short(cache));
}

static inline bool cache_is_far(const struct kmem_cache *cache, unsigned slot)
{
    __typeof__(cache->ops->is_far) is_far = cache_op(cache, is_far);
    return unlikely(is_far != NULL) && is_far(cache, slot);
}

/* Replace *cache by the sibling from which a thread on the slot allocates. Returns false if the slot's node is not
 * known now; *cache is then unchanged, and any sibling will do. */
static inline bool cache_enter(struct kmem_cache **cache, unsigned slot)
{
    __typeof__((*cache)->ops->enter) enter = cache_op(*cache, enter);
    return likely(enter == NULL) || enter(cache, slot);
}

/* Publish the gauges of the cache in the record, if there is one; called after each slow path that may change one,
 * which ends_swap() does not. With NULL, publish those of the process; called at every 32nd slow path, and after a
 * large block was allocated or freed without the span cache. */
static inline void cache_publish(const struct kmem_cache *cache)
{
    if (unlikely(hooks.publish != NULL))
        hooks.publish(cache);
}

/* The properties of a cache to be set up. hooks.attach_features sets cache->flags, home and instruments, and may
 * change the members of the second group. */
struct cache_shape {
    const char *name;
    uint32_t object_size; /* bytes that a user asks for */
    uint32_t align;
    const struct kmem_cache_args *args; /* NULL: defaults */

    slab_flags_t flags;
    uint32_t size;          /* bytes from one object to the next */
    unsigned capacity_most; /* of sheaves; 0: the cache has none */
    bool shuffled;          /* fresh objects are handed out in random order */
};

/*
 * Make the tables and counters of the cache with this number usable before it is set up. Returns false when the
 * system refuses.
 */
bool cache_reach(unsigned number);

/* Set up the cache with this number. Two threads may do so at once for a class of malloc or a sibling: both write the
 * same values. */
void cache_setup(unsigned number, struct cache_shape shape);

/* Set the limits of the cache's barns by sheaf_config; `size` is that of its objects. */
void cache_barn_limits(struct kmem_cache *cache, uint32_t size);

/* Clear an empty cache, so that its number can be used again. The locks of setup, of remote drains and of the cache
 * are held. */
void cache_forget(struct kmem_cache *cache);

#endif
