#include "cache/alloc.h"
#include "cache/decay.h"
#include "cache/ends.h"
#include "cache/sheaves.h"

/*
 * No lock is held on entry to or exit from any function here, and none keeps other threads off the slot. A sheaf
 * is filled or emptied while it belongs to one thread alone, and the ends are detached and attached by one
 * compare-and-store each. If the thread is preempted, migrated or interrupted in between and the word changes, its
 * sheaf goes to the spare, the barn or the slabs. Objects in a detached sheaf count as neither in use nor free
 * until the sheaf is put somewhere.
 */

#define TRIES 4 /* how often the word may change before an allocation bypasses the sheaves */

/* Fold the full count of pops of a LIFO word into the counters. The slot keeps its sheaf. */
static void fold_in_place(struct kmem_cache *cache, unsigned slot, uint64_t top)
{
    struct ends ends;
    if (ends_detach(cache, slot, top, &ends))
        ends_attach(cache, slot, ends);
}

static void count_allocated(const struct kmem_cache *cache, unsigned slot)
{
    count(slot, cache->number, COUNT_alloc_slowpath, 1);
    cache_counted(cache, slot, 1);
}

/* ---- the pop end is empty ---- */

/*
 * The number of objects that a refill fetches. With two ends, all objects of a slot circulate and touch their
 * pages, so a refill fetches at most a quarter of the objects that are out of the slabs. In a LIFO cache surplus
 * objects stay untouched. The counts are read without the lock, as a hint.
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

/* Two ends: exchange the sheaves, and take an object from the one that frees have filled. Returns NULL if the
 * slot's word has changed. */
static void *alloc_exchanged(struct kmem_cache *cache, unsigned slot, uint64_t top)
{
    struct ends ends;
    if (!ends_detach(cache, slot, top, &ends))
        return NULL;
    ends_exchange(cache, slot, &ends);
    void *object = ends.pop->objects[--ends.pop->count];
    count_allocated(cache, slot);
    ends_attach(cache, slot, ends);
    cache_publish(cache);
    return object;
}

/* Returns a sheaf with at least one object: the spare, a sheaf of the barn or a refilled one, in the kernel's
 * order. Returns NULL if there is no memory. */
static struct sheaf *find_filled(struct kmem_cache *cache, unsigned slot, uint64_t top)
{
    struct sheaf *spare = NULL;
    if (cache_spare_holds(slot, word_id(cache->number)) > 0) {
        spare = cache_take_spare(slot, word_id(cache->number));
        if (spare && spare->count)
            return cache_swap_spare(cache, slot, top, spare);
    }
    struct sheaf *full = barn_get(cache_barn_here(cache));
    if (full) {
        count(slot, cache->number, COUNT_barn_get, 1);
        if (unlikely(spare != NULL))
            cache_put_sheaf(cache, slot, spare);
        return full;
    }
    if (!spare)
        spare = cache_take_spare(slot, word_id(cache->number));
    if (unlikely(spare && spare->count))
        return cache_swap_spare(cache, slot, top, spare);
    count(slot, cache->number, COUNT_barn_get_fail, 1);
    barn_missed(cache_barn_here(cache), cache->barn_least, cache->barn_most);
    return refill(cache, slot, spare);
}

/* Allocates one object without a sheaf: a remote drain holds the slot's ends, its word keeps changing, or there is no
 * sheaf for it. */
static void *alloc_bypassing_slot(struct kmem_cache *cache, unsigned slot)
{
    void *object = barn_get_object(cache_barn_here(cache));
    if (!object)
        slab_take(&cache->slab, &object, 1);
    if (object)
        count_allocated(cache, slot);
    if (object && cache_is_short(cache))
        cache_top_up(cache);
    return object;
}

/* ---- caches with features ---- */

static void *before_refill(struct kmem_cache *cache, unsigned slot)
{
    __typeof__(cache->ops->before_refill) other = cache_op(cache, before_refill);
    return other ? other(cache, slot) : NULL;
}

static noinline_cold void *alloc_by_ops(struct kmem_cache *cache, unsigned slot)
{
    __typeof__(cache->ops->alloc) alloc = cache_op(cache, alloc);
    if (alloc)
        return alloc(cache, cache->object_size, 1);
    void *object = alloc_bypassing_slot(cache, slot);
    __typeof__(cache->ops->alloc_elsewhere) elsewhere = cache_op(cache, alloc_elsewhere);
    return unlikely(!object && elsewhere) ? elsewhere(cache, slot) : object;
}

/* ---- the slow path ---- */

void *cache_alloc_raw(struct kmem_cache *cache)
{
    unsigned slot = slot_counting();
    cache_decay(slot);
    void *object = alloc_bypassing_slot(cache, slot);
    cache_publish(cache);
    return object;
}

/*
 * What calls it, and what it calls: docs/cold-path.md, "The call tree of malloc". What it does in each state:
 * docs/cold-path.md, "What each event changes".
 */
void *cache_alloc_slow(struct kmem_cache *cache)
{
    unsigned slot = 0;
    for (int i = 0; i < TRIES; i++) {
        slot = slot_current();
        if (!slot_enter(slot)) {
            slot = 0; /* the system refuses memory for the current slot's words and counters */
            break;
        }
        cache_decay(slot);
        if (unlikely(cache->ops != NULL)) {
            if (!cache_enter(&cache, slot))
                continue;
            void *object = before_refill(cache, slot);
            if (object)
                return object;
        }
        struct word_id id = word_id(cache->number);
        uint64_t top = read_once(slot_words(slot, id)->top);
        if (unlikely(top_claimed(top))) {
            count(slot, cache->number, COUNT_claimed, 1);
            break;
        }
        if (end_holds(top_pop_end(top))) {
            if (cache->lifo && top_full_count(top)) {
                fold_in_place(cache, slot, top);
                cache_publish(cache);
            }
            void *object = slot_pop(id, cache->lifo);
            if (object)
                return object;
            continue;
        }
        if (!cache_has_sheaves(cache))
            break;
        if (!cache->lifo && end_holds(top_push_end(top))) {
            void *object = ends_swap(slot, id) ? slot_pop(id, false) : alloc_exchanged(cache, slot, top);
            if (object)
                return object;
            continue;
        }
        struct sheaf *sheaf = find_filled(cache, slot, top);
        if (!sheaf)
            break;
        void *object = sheaf->objects[--sheaf->count];
        count_allocated(cache, slot);
        ends_replace_pop(cache, slot, top, sheaf);
        cache_publish(cache);
        return object;
    }
    return likely(cache->ops == NULL) ? alloc_bypassing_slot(cache, slot) : alloc_by_ops(cache, slot);
}
