#include "cache/sparse.h"
#include "cache/ends.h"
#include "os/clock.h"
#include "os/cpu.h"
#include "slab/holes.h"

/* ---- sheaves of sparse caches ---- */

#define DRAIN_SHEAVES  4 /* of a barn, for each sheaf that it does not get */
#define CAPACITY_LEAST 2 /* as long as objects come back that seldom, more would only pin slabs */

void sparse_drain(struct kmem_cache *cache, unsigned slot, struct barn *barn)
{
    for (int i = 0; i < DRAIN_SHEAVES; i++) {
        struct sheaf *sheaf = barn_get(barn);
        if (!sheaf || !cache_empty_sheaf(cache, slot, sheaf, barn))
            return;
    }
}

static unsigned wanted_capacity(const struct kmem_cache *cache)
{
    uint64_t wanted = slab_out(&cache->slab) / SPARSE_WAITING;
    return wanted > CAPACITY_LEAST ? (unsigned)(wanted < UINT16_MAX ? wanted : UINT16_MAX) : CAPACITY_LEAST;
}

/* Sheaves of the slot begin with `capacity` again; what they may hold less goes back to its budget. */
static void shrink(const struct kmem_cache *cache, unsigned slot, unsigned capacity)
{
    _Atomic uint64_t *spare = &slot_words(slot, SLOT_ID(cache->number))->spare;
    uint64_t seen = atomic_load_explicit(spare, memory_order_relaxed);
    do {
        if (spare_capacity(seen) <= capacity)
            return;
    } while (!atomic_compare_exchange_weak(
        spare, &seen, (seen & ~(SPARE_CAPACITY | SPARE_SWAPS | SPARE_SETTLED)) | (uint64_t)capacity << 32));
    atomic_fetch_sub_explicit(&slot_head(slot)->budget_used,
                              2 * (int64_t)(spare_capacity(seen) - capacity) * (int64_t)cache->slab.size,
                              memory_order_relaxed);
}

static void flush(struct kmem_cache *cache, unsigned slot, struct sheaf *sheaf, struct barn *barn)
{
    if (sheaf)
        cache_empty_sheaf(cache, slot, sheaf, barn);
}

/* A signal handler, a migration or a fork meanwhile finds the slot without sheaves, as during each slow path. */
bool sparse_free(struct kmem_cache *cache, unsigned slot, uint64_t top, void *object)
{
    unsigned capacity = wanted_capacity(cache);
    if (cache->capacity_fixed || capacity > spare_capacity(slot_words(slot, SLOT_ID(cache->number))->spare))
        return false;
    struct sheaf *sheaf = empty_sheaf_alloc(capacity);
    struct ends ends;
    if (!sheaf)
        return false;
    if (!ends_detach(cache, slot, top, &ends)) {
        empty_sheaf_free(sheaf);
        return false;
    }
    struct barn *barn = cache_barn_here(cache);
    barns_traffic(slot,
                  ((ends.pop ? ends.pop->count : 0ul) + (ends.push ? ends.push->count : 0ul)) * cache->slab.size);
    shrink(cache, slot, capacity);
    flush(cache, slot, ends.pop, barn);
    flush(cache, slot, ends.push, barn);
    flush(cache, slot, cache_take_spare(slot, SLOT_ID(cache->number)), barn);
    sparse_drain(cache, slot, barn);
    sheaf->objects[sheaf->count++] = object;
    count(slot, cache->number, COUNT_free_slowpath, 1);
    ends_attach(cache, slot, cache->lifo ? (struct ends){sheaf, NULL} : (struct ends){NULL, sheaf});
    return true;
}

/* ---- pages inside slabs ---- */

#define HOLES_LEAST 16 /* units in the slabs of a cache: 1 MiB */
#define HOLES_AGE   4u /* of the decay time, for which it has been sparse */

/* What free objects hold is lost: none that a constructor made, that readers may still look at, or with patterns. */
static bool may_have_holes(const struct kmem_cache *cache)
{
    return !cache->slab.ctor && !cache->slab.typesafe && !cache->detour && cache_is_sparse(cache);
}

/*
 * Not at once: a program that changes sizes five times in a second and a half faulted in 15 000 pages more, for 8 of
 * 160 MiB.
 */
void sparse_age(struct kmem_cache *cache)
{
    uint32_t now = clock_ms() | 1;
    if ((uint64_t)cache->slab.slabs * cache->slab.units < HOLES_LEAST || !may_have_holes(cache))
        cache->sparse_since = 0;
    else if (!cache->sparse_since)
        cache->sparse_since = now;
    else if (now - cache->sparse_since >= sheaf_config.decay_ms / HOLES_AGE)
        slab_holes(&cache->slab);
}

/*
 * Whether slabs fell to a quarter of what they were, and then each time by a quarter: a burst ends, and its last
 * frees may be the program's last calls. Racy: two threads may both find it, or one of two falls be overlooked.
 */
static bool fell(void)
{
    static _Atomic uint32_t mark;
    uint32_t units = (uint32_t)read_once(region_stats.slab_units);
    uint32_t below = atomic_load_explicit(&mark, memory_order_relaxed);
    bool falls = units < below && units >= SMALL_HEAP;
    if (falls || units / 4 > below)
        atomic_store_explicit(&mark, falls ? units - units / 4 : units / 4, memory_order_relaxed);
    return falls;
}

static void publish(const struct kmem_cache *cache)
{
    if (cache_publish)
        cache_publish(cache);
}

/* The lock of takeovers is held. */
static void end_burst(void)
{
    for (unsigned i = CACHE_FIRST; i < read_once(cache_top); i++) {
        struct kmem_cache *cache = &caches[i];
        if (!cache_in_use(cache) || !may_have_holes(cache))
            continue;
        slab_shrink(&cache->slab);
        slab_holes(&cache->slab);
        publish(cache);
    }
}

/* ---- all barns together ---- */

/*
 * All barns together hold at most what one may grow to, an eighth of that more for each CPU, and a share of the
 * memory in slabs. So a program of one or two hot classes does not meet the bound, and one whose classes come and go
 * does not keep a barn for each.
 */
#define BOUND_SHARE 64

static uint64_t held_by(const struct kmem_cache *cache)
{
    uint64_t objects = 0;
    for (int d = 0; d < DOMAINS; d++)
        objects += barn_objects(cache_barn(cache, d));
    return objects * cache->slab.size;
}

static uint64_t bound(void)
{
    return sheaf_config.barn_max * (8 + cpu_allowed_count) / 8 +
           (read_once(region_stats.slab_units) << UNIT_SHIFT) / BOUND_SHARE;
}

/* What the barns of a cache give of what is to go: half, or more where nobody needed more since the last step of
 * decay. Returns the bytes. */
static uint64_t give_share(struct kmem_cache *cache, uint64_t excess)
{
    uint64_t given = 0;
    for (int d = 0; d < DOMAINS && given < excess; d++) {
        struct barn *barn = cache_barn(cache, d);
        uint64_t held = barn_objects(barn), low = atomic_load_explicit(&barn->low, memory_order_relaxed);
        uint64_t left = (excess - given) / cache->slab.size + 1;
        uint64_t share = low < held && low > held / 2 ? low : (held + 1) / 2;
        share = share < left ? share : left;
        struct sheaf *sheaf;
        for (uint64_t n = 0; n < share && (sheaf = barn_get(barn));) {
            unsigned objects = sheaf->count;
            if (!cache_empty_sheaf(cache, 0, sheaf, barn))
                break;
            n += objects;
            given += (uint64_t)objects * cache->slab.size;
        }
    }
    return given;
}

/* The lock of takeovers is held, so that no cache is destroyed meanwhile. They begin in turn. */
static void give_excess(uint64_t excess)
{
    static _Atomic unsigned turn;
    unsigned top = read_once(cache_top);
    unsigned first = atomic_fetch_add_explicit(&turn, 7, memory_order_relaxed);
    uint64_t given = 0;
    for (unsigned i = 0; i < top - CACHE_FIRST && given < excess; i++) {
        struct kmem_cache *cache = &caches[CACHE_FIRST + (first + i) % (top - CACHE_FIRST)];
        if (!cache_in_use(cache))
            continue;
        uint64_t share = give_share(cache, excess - given);
        given += share;
        if (share)
            publish(cache);
    }
}

/* Where the lock is taken, a step of decay is at it, or another thread is here. */
void sparse_look(void)
{
    uint64_t held = 0, most = bound();
    for (unsigned i = CACHE_FIRST; i < read_once(cache_top); i++)
        if (cache_in_use(&caches[i]))
            held += held_by(&caches[i]);
    bool ends = fell();
    if ((held <= most && !ends) || !lock_try(lock_of(LOCK_TAKEOVER)))
        return;
    if (held > most)
        give_excess(held - most);
    if (ends)
        end_burst();
    lock_release(lock_of(LOCK_TAKEOVER));
}
