#include "feature/detour.h"
#include "cache/ends.h"
#include "cache/kmem_cache.h"
#include "cache/misuse.h"
#include "node/node.h"
#include "cache/sparse.h"
#include "os/membarrier.h"

#include <string.h>

/*
 * Nothing is locked on entry to or exit from any function here, and no slot is held while they work: a sheaf is
 * filled or emptied while it belongs to nobody else, and the ends are detached and attached by one compare-and-store
 * each. A thread that is preempted, migrated or interrupted anywhere in between finds the word changed, keeps its
 * sheaf and looks again. A sheaf in hand is in no other place: what it holds counts as neither in use nor free until
 * it is put somewhere.
 */

#define TRIES 4 /* how often a slot may move on before an object is handled by itself */

struct sheaf *cache_take_spare(unsigned slot, uintptr_t id)
{
    _Atomic uint64_t *spare = &slot_words(slot, id)->spare;
    if (!(uint32_t)atomic_load_explicit(spare, memory_order_relaxed))
        return NULL;
    uint32_t offset = (uint32_t)atomic_fetch_and(spare, ~0ull << 32); /* what has grown stays */
    return offset ? sheaf_at(offset) : NULL;
}

/*
 * The objects in the spare, a hint: whoever takes it meanwhile may change it. -1 where there is none. Looking before
 * taking saves two locked instructions each time the spare is no help.
 */
static int spare_holds(unsigned slot, uintptr_t id)
{
    uint32_t offset = (uint32_t)atomic_load_explicit(&slot_words(slot, id)->spare, memory_order_relaxed);
    return offset ? read_once(sheaf_at(offset)->count) : -1;
}

bool cache_put_spare(unsigned slot, uintptr_t id, struct sheaf *sheaf)
{
    _Atomic uint64_t *spare = &slot_words(slot, id)->spare;
    uint64_t seen = atomic_load_explicit(spare, memory_order_relaxed);
    while (!(uint32_t)seen)
        if (atomic_compare_exchange_weak(spare, &seen, seen | sheaf_offset(sheaf)))
            return true;
    return false;
}

/* False: the system does not grant memory for the slot. */
static bool slot_enter(unsigned slot)
{
    if (!slot_commit(slot))
        return false;
    if (unlikely(slot >= read_once(slot_top)))
        slot_raise_top(slot);
    return true;
}

/* ---- capacity ---- */

static unsigned step_up(const struct kmem_cache *cache, unsigned capacity)
{
    if (cache->capacity_fixed)
        return cache->capacity;
    unsigned larger = capacity ? sheaf_capacity_of(sheaf_order_for(capacity) + 1) : CAPACITY_START;
    return larger < cache->capacity ? larger : cache->capacity;
}

bool cache_grow_sheaves(const struct kmem_cache *cache, unsigned slot, unsigned capacity, bool force)
{
    _Atomic uint64_t *spare = &slot_words(slot, SLOT_ID(cache->number))->spare;
    _Atomic int64_t *used = &slot_head(slot)->budget_used;
    uint64_t seen = atomic_load_explicit(spare, memory_order_relaxed);
    while (spare_capacity(seen) < capacity) {
        int64_t bytes = 2 * (int64_t)(capacity - spare_capacity(seen)) * cache->slab.size;
        int64_t most = (int64_t)sheaf_config.slot_budget;
        if (!force && atomic_load_explicit(used, memory_order_relaxed) + bytes > most)
            return false;
        if (atomic_compare_exchange_weak(spare, &seen, (seen & ~SPARE_CAPACITY) | (uint64_t)capacity << 32))
            atomic_fetch_add_explicit(used, bytes, memory_order_relaxed);
    }
    return true;
}

/* The capacity for the next sheaf of this slot: one step larger each time one is needed, within the slot's budget. */
unsigned cache_next_capacity(const struct kmem_cache *cache, unsigned slot)
{
    unsigned capacity = spare_capacity(slot_words(slot, SLOT_ID(cache->number))->spare);
    unsigned larger = step_up(cache, capacity);
    return likely(larger == capacity) || !cache_grow_sheaves(cache, slot, larger, !capacity) ? capacity : larger;
}

/* ---- moving sheaves ---- */

bool cache_flush_sheaf(struct kmem_cache *cache, unsigned slot, struct sheaf *sheaf)
{
    struct slab_report report;
    if (!slab_give(&cache->slab, sheaf->objects, sheaf->count, &report))
        return false;
    if (unlikely(report.fault))
        misuse_slab(cache, &report);
    count(slot, cache->number, COUNT_sheaf_flush, sheaf->count);
    sheaf->count = 0;
    return true;
}

bool cache_empty_sheaf(struct kmem_cache *cache, unsigned slot, struct sheaf *sheaf, struct barn *barn)
{
    if (sheaf->count && !cache_flush_sheaf(cache, slot, sheaf)) {
        barn_put(barn, sheaf, BARN_FORCE);
        return false;
    }
    empty_sheaf_free(sheaf);
    return true;
}

struct barn *cache_barn_here(const struct kmem_cache *cache)
{
    return unlikely(cache->nodes) ? node_barn(cache, slot_current()) : cache_barn(cache, slot_domain());
}

bool cache_barn_put(struct kmem_cache *cache, unsigned slot, struct sheaf *sheaf, bool force)
{
    struct barn *barn = cache_barn_here(cache);
    bool sparse = !force && cache_is_sparse(cache);
    if (unlikely(sparse))
        sparse_drain(cache, slot, barn);
    bool done = !sparse && barn_put(barn, sheaf, force ? BARN_FORCE : barn_limit(barn, cache->barn_least));
    count(slot, cache->number, done ? COUNT_barn_put : COUNT_barn_put_fail, 1);
    barns_traffic(slot, (uint64_t)sheaf->count * cache->slab.size);
    return done;
}

void cache_put_sheaf(struct kmem_cache *cache, unsigned slot, struct sheaf *sheaf)
{
#ifdef SHEAF_BENCH /* bench/seeds/deferred.c measures what keeping an empty sheaf as the spare is worth */
    if (bench_drop_empty && !sheaf->count) {
        empty_sheaf_free(sheaf);
        return;
    }
#endif
    /* with two ends, both of which may be full, a filled spare would be a third */
    if ((cache->lifo || !sheaf->count) && cache_put_spare(slot, SLOT_ID(cache->number), sheaf))
        return;
    if (sheaf->count) {
        if (cache_barn_put(cache, slot, sheaf, false))
            return;
        if (!cache_flush_sheaf(cache, slot, sheaf)) {
            cache_barn_put(cache, slot, sheaf, true);
            return;
        }
    }
    empty_sheaf_free(sheaf);
}

/* LIFO: the count of pops is full. */
static void fold_in_place(struct kmem_cache *cache, unsigned slot, uint64_t top)
{
    struct ends ends;
    if (ends_detach(cache, slot, top, &ends))
        ends_attach(cache, slot, ends);
}

/* ---- allocation: the pop end is empty ---- */

/*
 * The number of objects that a refill fetches. With two ends, all objects of a slot circulate and touch their pages,
 * so a refill is bounded by a share of the objects out of the slabs. The surplus of a LIFO cache stays untouched. The
 * counts are read without the lock and are a hint.
 */
#define REFILL_SHARE 4
static unsigned refill_size(const struct kmem_cache *cache, unsigned capacity)
{
    uint64_t all = (uint64_t)read_once(cache->slab.slabs) * cache->slab.objects, share;
    if (cache->lifo || cache->capacity_fixed)
        return capacity;
    share = (all - read_once(cache->slab.free)) / REFILL_SHARE;
    share = share > CAPACITY_START ? share : CAPACITY_START;
    return share < capacity ? (unsigned)share : capacity;
}

static struct sheaf *refill(struct kmem_cache *cache, unsigned slot, struct sheaf *empty)
{
    unsigned capacity = cache_next_capacity(cache, slot);
    if (empty && empty->capacity != capacity) {
        empty_sheaf_free(empty);
        empty = NULL;
    }
    if (!empty && !(empty = empty_sheaf_alloc(capacity)))
        return NULL;
    unsigned n = slab_take(&cache->slab, empty->objects, refill_size(cache, capacity));
    if (!n) {
        empty_sheaf_free(empty);
        return NULL;
    }
    empty->count = (uint16_t)n;
    count(slot, cache->number, COUNT_sheaf_refill, n);
    return empty;
}

/*
 * Main, whose word was `top`, and spare change places. Where that happens often for what main was good for, a load
 * swings by more than one sheaf holds and less than two, and never asks for a new sheaf: every SWAPS_TO_GROW-th time
 * sheaves grow by a step (batches of 100 objects: 5 swaps each with sheaves of 61, none with those of 125).
 */
#define SWAPS_TO_GROW 16
static struct sheaf *swap_spare(struct kmem_cache *cache, unsigned slot, uint64_t top, struct sheaf *spare)
{
    count(slot, cache->number, COUNT_spare_swap, 1);
    if (!cache->lifo || (top_pop_end(top) && top_pops(top) > 4ul * spare->capacity))
        return spare;
    uint64_t seen = atomic_fetch_add(&slot_words(slot, SLOT_ID(cache->number))->spare, SPARE_SWAP);
    bool grow = (seen >> SPARE_SWAP_SHIFT) % SWAPS_TO_GROW == SWAPS_TO_GROW - 1;
    unsigned capacity = grow ? cache_next_capacity(cache, slot) : spare_capacity(seen);
    struct sheaf *larger = spare->capacity < capacity ? empty_sheaf_alloc(capacity) : NULL;
    if (!larger)
        return spare;
    memcpy(larger->objects, spare->objects, spare->count * sizeof(void *));
    larger->count = spare->count;
    spare->count = 0;
    empty_sheaf_free(spare);
    return larger;
}

/*
 * Two ends: the sheaf that frees went to becomes the one that allocations come from. Returns an object of it, or NULL
 * where the slot's word has changed.
 */
static void *alloc_exchanged(struct kmem_cache *cache, unsigned slot, uint64_t top)
{
    struct ends ends;
    if (!ends_detach(cache, slot, top, &ends))
        return NULL;
    ends_exchange(cache, slot, &ends);
    void *object = ends.pop->objects[--ends.pop->count];
    count(slot, cache->number, COUNT_alloc_slowpath, 1);
    ends_attach(cache, slot, ends);
    return object;
}

/* A sheaf with at least one object, in the kernel's order of tries: spare, barn, refill. */
static struct sheaf *find_filled(struct kmem_cache *cache, unsigned slot, uint64_t top)
{
    struct sheaf *spare = NULL;
    if (spare_holds(slot, SLOT_ID(cache->number)) > 0) {
        spare = cache_take_spare(slot, SLOT_ID(cache->number));
        if (spare && spare->count)
            return swap_spare(cache, slot, top, spare);
    }
    struct sheaf *full = barn_get(cache_barn_here(cache));
    if (full) {
        count(slot, cache->number, COUNT_barn_get, 1);
        if (unlikely(spare != NULL))
            cache_put_sheaf(cache, slot, spare);
        return full;
    }
    if (!spare)
        spare = cache_take_spare(slot, SLOT_ID(cache->number));
    if (unlikely(spare && spare->count))
        return swap_spare(cache, slot, top, spare);
    count(slot, cache->number, COUNT_barn_get_fail, 1);
    barn_missed(cache_barn_here(cache), cache->barn_least, cache->barn_most);
    return refill(cache, slot, spare);
}

/* One object, past the sheaves: the slot is held or keeps moving, or there are no sheaves. */
static void *alloc_around(struct kmem_cache *cache, unsigned slot)
{
    void *object = barn_get_object(cache_barn_here(cache));
    if (!object)
        slab_take(&cache->slab, &object, 1);
    if (object)
        count(slot, cache->number, COUNT_alloc_slowpath, 1);
    if (object && unlikely(reserve_short(&cache->reserve)))
        reserve_top_up(cache);
    return object;
}

void *cache_alloc_raw(struct kmem_cache *cache)
{
    unsigned slot = slot_counting();
    cache_decay(slot);
    void *object = alloc_around(cache, slot);
    cache_went_slow(cache);
    return object;
}

void *cache_alloc_slow(struct kmem_cache *cache)
{
    unsigned slot = 0;
    for (int i = 0; i < TRIES; i++) {
        slot = slot_current();
        if (!slot_enter(slot)) {
            slot = 0; /* the current one cannot even count */
            break;
        }
        cache_decay(slot);
        if (unlikely(cache->nodes)) {
            if (!node_enter(&cache, slot))
                continue;
            void *object = unlikely(sheaf_config.defrag) ? node_defrag(cache, slot) : NULL;
            if (object)
                return object;
        }
        uintptr_t id = SLOT_ID(cache->number);
        uint64_t top = read_once(slot_words(slot, id)->top);
        if (unlikely(top_held(top))) {
            count(slot, cache->number, COUNT_held, 1);
            break;
        }
        if (end_holds(top_pop_end(top))) {
            if (cache->lifo && top_full_count(top)) {
                fold_in_place(cache, slot, top);
                cache_went_slow(cache);
            }
            void *object = slot_pop(id, cache->lifo);
            if (object)
                return object;
            continue;
        }
        if (!cache->capacity || unlikely(reserve_short(&cache->reserve)))
            break;
        if (!cache->lifo && end_holds(top_push_end(top))) {
            void *object = ends_swap(slot, id) ? slot_pop(id, false) : alloc_exchanged(cache, slot, top);
            cache_went_slow(cache);
            if (object)
                return object;
            continue;
        }
        struct sheaf *sheaf = find_filled(cache, slot, top);
        if (!sheaf)
            break;
        void *object = sheaf->objects[--sheaf->count];
        count(slot, cache->number, COUNT_alloc_slowpath, 1);
        ends_replace_pop(cache, slot, top, sheaf);
        cache_went_slow(cache);
        return object;
    }
    if (unlikely(cache->detour))
        return detour_alloc(cache, cache->object_size, 1);
    void *object = alloc_around(cache, slot);
    return unlikely(!object && cache->nodes) ? node_alloc_elsewhere(cache, slot) : object;
}

/* ---- free: the push end is full ---- */

/*
 * A sheaf with room: the spare, else an empty one; the full one goes to the barn (or is flushed) when it is replaced.
 * With no memory for an empty one, the spare is exchanged with the barn or flushed.
 */
static struct sheaf *find_room(struct kmem_cache *cache, unsigned slot, uint64_t top)
{
    uintptr_t id = SLOT_ID(cache->number);
    int holds = spare_holds(slot, id);
    unsigned capacity = spare_capacity(slot_words(slot, id)->spare);
    if (holds < 0 || holds >= (int)capacity) {
        bool first = !cache->lifo && !top_push_end(top) && capacity; /* the first at that end is no sign of need */
        struct sheaf *empty = empty_sheaf_alloc(first ? capacity : cache_next_capacity(cache, slot));
        if (likely(empty != NULL))
            return empty;
    }
    struct sheaf *spare = cache_take_spare(slot, id);
    if (spare && spare->count < spare->capacity)
        return swap_spare(cache, slot, top, spare);
    if (spare && !cache_barn_put(cache, slot, spare, false)) {
        if (cache_flush_sheaf(cache, slot, spare))
            return spare;
        cache_barn_put(cache, slot, spare, true);
    }
    return empty_sheaf_alloc(cache_next_capacity(cache, slot));
}

/*
 * One object, past the sheaves. In a signal handler over the cache's lock it waits in the barn, in a sheaf of its
 * own. When there is no memory even for that, it is lost rather than the process.
 */
void cache_free_raw(struct kmem_cache *cache, void *object)
{
    struct slab_report report;
    if (unlikely(reserve_short(&cache->reserve)) && reserve_put(cache, object))
        return;
    if (slab_give(&cache->slab, &object, 1, &report)) {
        if (unlikely(report.fault))
            misuse_slab(cache, &report);
        return;
    }
    struct sheaf *sheaf = empty_sheaf_alloc(CAPACITY_START);
    if (!sheaf)
        return;
    sheaf->objects[sheaf->count++] = object;
    barn_put(cache_barn_here(cache), sheaf, BARN_FORCE);
}

static void free_around(struct kmem_cache *cache, unsigned slot, void *object)
{
    if (unlikely(cache->detour) && !(object = detour_free(cache, object)))
        return;
    count(slot, cache->number, COUNT_free_slowpath, 1);
    cache_free_raw(cache, object);
}

/*
 * The push refuses an object that is among the two on top. If the end did not move while we looked, they are free
 * objects of this slot, and the caller frees one again.
 */
static bool looks_on_top(const uint32_t *word, uint32_t end, unsigned depth, const void *object)
{
    void *const *at = sheaf_entry(end);
    bool found = (depth > 0 && __atomic_load_n(&at[-1], __ATOMIC_ACQUIRE) == object) ||
                 (depth > 1 && __atomic_load_n(&at[-2], __ATOMIC_ACQUIRE) == object);
    return found && read_once(*word) == end;
}

/*
 * Where stores are not seen in order (aarch64), an entry may be read older than the word, even as a restarted push of
 * our own left it. So before anybody is accused, all CPUs come to rest and it is looked at once more.
 */
static bool on_top(const uint32_t *word, uint32_t end, unsigned depth, const void *object)
{
    if (likely(!looks_on_top(word, end, depth, object)))
        return false;
    membarrier_rseq();
    return looks_on_top(word, end, depth, object);
}

/*
 * Two ends: the full sheaf that frees went to becomes the one that allocations come from, and the other takes the
 * object. False: the slot's word has changed, or there is no memory for a sheaf.
 */
static bool free_exchanged(struct kmem_cache *cache, unsigned slot, uint64_t top, void *object)
{
    struct ends ends;
    if (!ends_detach(cache, slot, top, &ends))
        return false;
    ends_exchange(cache, slot, &ends);
    bool room = ends.push && ends.push->count < ends.push->capacity;
    if (room) {
        ends.push->objects[ends.push->count++] = object;
        count(slot, cache->number, COUNT_free_slowpath, 1);
    }
    ends_attach(cache, slot, ends);
    return room;
}

void cache_free_slow(struct kmem_cache *cache, void *object)
{
    unsigned slot = 0;
    for (int i = 0; i < TRIES; i++) {
        slot = slot_current();
        if (!slot_enter(slot)) {
            slot = 0; /* the current one cannot even count */
            break;
        }
        cache_decay(slot);
        if (unlikely(cache->nodes) && node_is_far(cache, slot)) {
            if (node_free(cache, slot, object))
                return;
            break;
        }
        uint64_t top = read_once(slot_words(slot, SLOT_ID(cache->number))->top);
        if (unlikely(top_held(top))) {
            count(slot, cache->number, COUNT_held, 1);
            break;
        }
        uint32_t end = cache->lifo ? top_pop_end(top) : top_push_end(top);
        if (end) {
            unsigned depth = end_depth(end);
            if (unlikely(on_top(slot_push_end(slot, cache->slab.id), end, depth, object)))
                misuse_report("double free of", object, cache->name);
            if (depth < sheaf_containing(end)->capacity) {
                if (slot_push(cache->slab.id, object))
                    return;
                continue;
            }
        }
        if (!cache->capacity || unlikely(reserve_short(&cache->reserve)))
            break;
        if (!cache->lifo && end &&
            ends_due(end_holds(top_pop_end(top)), end_depth(end), sheaf_containing(end)->capacity)) {
            bool done = ends_swap(slot, SLOT_ID(cache->number)) ? slot_push(cache->slab.id, object)
                                                                : free_exchanged(cache, slot, top, object);
            cache_went_slow(cache);
            if (done)
                return;
            continue;
        }
        if (unlikely(cache_is_sparse(cache)) && sparse_free(cache, slot, top, object)) {
            cache_went_slow(cache);
            return;
        }
        struct sheaf *sheaf = find_room(cache, slot, top);
        if (!sheaf)
            break;
        sheaf->objects[sheaf->count++] = object;
        count(slot, cache->number, COUNT_free_slowpath, 1);
        ends_replace_push(cache, slot, top, sheaf);
        cache_went_slow(cache);
        return;
    }
    free_around(cache, slot, object);
}
