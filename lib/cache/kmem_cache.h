/*
 * Caches: numbers, names, and the slow paths between a slot's sheaves and the slabs.
 *
 * Conservation, at a quiet moment, for every cache (cache_check() asserts it):
 *     objects out of slabs = in use + in the sheaves of slots + in barns + in prefilled sheaves + in the reserve
 *                            + waiting in quarantine
 * and in use = with the user + waiting for a grace period.
 */
#ifndef SHEAF_CACHE_KMEM_CACHE_H
#define SHEAF_CACHE_KMEM_CACHE_H

#include "slot/barn.h"
#include "config/config.h"
#include "kmem/reserve.h"
#include "slot/slot.h"
#include "sheaf/kmem_cache.h"
#include "slab/slab.h"

#define CAPACITY_START 13 /* what a slot begins with; it grows while there is traffic */

struct kmem_cache {
    struct slab_cache slab; /* slab.size 0: this number is not in use */
    char name[32];
    uint32_t object_size;
    uint32_t align;
    uint32_t barn_least, barn_most; /* objects: between these a barn's limit moves */
    uint16_t capacity;              /* the most that a sheaf may hold; 0: no sheaves */
    uint16_t number;
    uint16_t home;       /* number of the first sibling (node/node.h), and with no others its own */
    uint16_t detour;     /* of enum detour (feature/detour.h); not 0 implies capacity 0 */
    uint8_t nodes;       /* siblings; 0: none, the cache is of all nodes */
    bool capacity_fixed; /* sheaves do not grow to it but begin with it */
    bool lifo;           /* the format of its words, by the size of its objects: slot/slot.h */
    bool is_malloc;
    bool sampled;                 /* some of its requests are served by feature/sample.h */
    slab_flags_t flags;           /* as created */
    uint64_t inherited;           /* in use when this process was forked off */
    uint64_t inherited_prefilled; /* in prefilled sheaves then, when the counters began anew */
    uint64_t inherited_rcu;       /* waiting for a grace period then, the same */
    uint64_t alloc_fail;
    uint64_t waiting;      /* objects in quarantine */
    uint32_t sparse_since; /* clock_ms() of the first step of decay that found it sparse, as all did since; 0: not */
    struct reserve reserve;
} cache_aligned;

extern hidden struct kmem_cache caches[CACHE_MAX];

/* By domain first: a process that uses only one then touches two pages of them. */
extern hidden struct barn cache_barns[DOMAINS][CACHE_MAX];

static inline struct barn *cache_barn(const struct kmem_cache *cache, unsigned domain)
{
    return &cache_barns[domain][cache->number];
}
extern hidden unsigned cache_top; /* numbers from here up were never used */

static inline bool cache_in_use(const struct kmem_cache *cache)
{
    return __atomic_load_n(&cache->slab.size, __ATOMIC_ACQUIRE) != 0;
}

/* Everything below the malloc layer, once; any number of threads may call it. False: the system grants no memory. */
bool cache_layer_init(void);
extern hidden bool cache_layer_ready;

/* Called after each slow path of a cache, and with NULL after a large block came or went otherwise than by a stash,
 * when somebody keeps a record (the preloaded object does); NULL otherwise. */
extern void (*cache_publish)(const struct kmem_cache *cache);
static inline void cache_went_slow(const struct kmem_cache *cache)
{
    if (unlikely(cache_publish != NULL))
        cache_publish(cache);
}

/* Give number `number` its name and geometry. */
void cache_setup(unsigned number, const char *name, uint32_t object_size, uint32_t size, uint32_t align,
                 const struct kmem_cache_args *args, slab_flags_t flags, bool is_malloc);

/* An object, after the fast path found nothing; NULL: no memory, or a signal handler over the lock (then errno is
 * untouched). */
void *cache_alloc_slow(struct kmem_cache *cache);

/* Take an object back, after the fast path did not. */
void cache_free_slow(struct kmem_cache *cache, void *object);

/* A raw object past the sheaves, for detours; NULL as above. */
void *cache_alloc_raw(struct kmem_cache *cache);

/* A raw object that was counted as freed before, to where it is most useful. */
void cache_free_raw(struct kmem_cache *cache, void *object);

/* Put a sheaf that belongs to nobody where it is most useful: spare, barn, slabs. */
void cache_put_sheaf(struct kmem_cache *cache, unsigned slot, struct sheaf *sheaf);

/* Give the objects of a sheaf to their slabs. False: not now (a signal handler over the lock). */
bool cache_flush_sheaf(struct kmem_cache *cache, unsigned slot, struct sheaf *sheaf);

/* Its objects to the slabs, itself to the pool of empty ones. False: as cache_flush_sheaf(); the barn has it. */
bool cache_empty_sheaf(struct kmem_cache *cache, unsigned slot, struct sheaf *sheaf, struct barn *barn);

/* The same of one that belongs to nobody, but its objects go to the reserve first where that is short. */
void cache_discard_sheaf(struct kmem_cache *cache, unsigned slot, struct sheaf *sheaf);

/* The barn for the thread that asks: that of its domain, or for a cache of another node one there. */
struct barn *cache_barn_here(const struct kmem_cache *cache);

/* The capacity for the next sheaf of this slot: one step larger each time, within the slot's budget. */
unsigned cache_next_capacity(const struct kmem_cache *cache, unsigned slot);

/* Give it to the current domain's barn; false: that is full, unless `force`. */
bool cache_barn_put(struct kmem_cache *cache, unsigned slot, struct sheaf *sheaf, bool force);

/* Let the slot's sheaves hold so many; false when its budget does not allow that, unless `force`. */
bool cache_grow_sheaves(const struct kmem_cache *cache, unsigned slot, unsigned capacity, bool force);

/* There is no memory: count it. NULL, with errno set. */
void *cache_alloc_failed(struct kmem_cache *cache);

/* Make it the slot's spare; false when there is one. */
bool cache_put_spare(unsigned slot, uintptr_t id, struct sheaf *sheaf);

/* Take the spare sheaf of a slot; NULL when there is none. */
struct sheaf *cache_take_spare(unsigned slot, uintptr_t id);

/* Empty all sheaves and barns of the cache into its slabs, and give empty slabs back. */
void cache_drain(struct kmem_cache *cache);
void cache_drain_locked(struct kmem_cache *cache); /* the lock of takeovers is held */

/* One step of giving memory back by age: idle slots, barns, slabs, region. Cheap when it is not time. No lock held.
 */
void cache_decay(unsigned slot);
/* The same, now; and all that the region has free goes back, what it learned to keep only with `all`. */
void cache_decay_idle(bool all);

/* Bring all that the slots' words count to the counters; exact but for what runs meanwhile. */
void cache_fold_all(void);

/* Give everything back that is not in use; bytes given to the system. */
size_t cache_trim_all(void);

/* Objects by where they are, exact when the cache is quiet. */
struct cache_census {
    uint64_t out, in_use, in_sheaves, in_barns, in_prefilled, in_reserve, waiting, barn_sheaves, barn_limit;
    uint64_t in_rcu; /* freed, waiting for a grace period; still in use */
};
void cache_census(const struct kmem_cache *cache, struct cache_census *census);

/* Assert conservation; the cache must be quiet. */
void cache_check(struct kmem_cache *cache);

/* fork: see process/fork.c. */
bool cache_may_wait(const struct lock *lock);
void cache_fork_prepare(void);
void cache_fork_parent(void);
void cache_fork_child(void);

#endif
