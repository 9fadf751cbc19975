#include "cache/free.h"
#include "cache/decay.h"
#include "cache/ends.h"
#include "cache/misuse.h"
#include "cache/sheaves.h"
#include "cache/sparse.h"
#include "platform/rseq/membarrier.h"

/* The first comment of cache/alloc.c says why these functions need no lock. */

#define TRIES 4 /* how often the word may change before a free bypasses the sheaves */

/*
 * Returns a sheaf with room: the spare, or else an empty one. The full sheaf that it replaces goes to the barn or is
 * flushed. If there is no memory for an empty sheaf, the spare is put into the barn or flushed instead.
 */
static struct sheaf *find_room(struct kmem_cache *cache, unsigned slot, uint64_t top)
{
    struct word_id id = word_id(cache->number);
    int holds = cache_spare_holds(slot, id);
    unsigned capacity = spare_capacity(slot_words(slot, id)->spare);
    if (holds < 0 || holds >= (int)capacity) {
        bool first =
            !cache->lifo && !top_push_end(top).at && capacity; /* the first sheaf at that end need not be larger */
        struct sheaf *empty = empty_sheaf_alloc(first ? capacity : cache_next_capacity(cache, slot));
        if (likely(empty != NULL))
            return empty;
    }
    struct sheaf *spare = cache_take_spare(slot, id);
    if (spare && spare->count < spare->capacity)
        return cache_swap_spare(cache, slot, top, spare);
    if (spare && !cache_barn_put(cache, slot, spare, false)) {
        if (cache_flush_sheaf(cache, slot, spare))
            return spare;
        cache_barn_put(cache, slot, spare, true);
    }
    return empty_sheaf_alloc(cache_next_capacity(cache, slot));
}

/* In a signal handler that interrupted the holder of the cache's lock, the object goes to the barn in a sheaf of
 * its own. If there is no memory for the sheaf, the object is leaked. */
void cache_free_raw(struct kmem_cache *cache, void *object)
{
    struct slab_report report;
    if (cache_absorb(cache, object))
        return;
    if (slab_put(&cache->slab, &object, 1, &report)) {
        if (unlikely(report.fault))
            misuse_slab(cache, &report);
        return;
    }
    bool small = cache->capacity && cache->capacity < CAPACITY_START;
    struct sheaf *sheaf = empty_sheaf_alloc(small ? cache->capacity : CAPACITY_START);
    if (!sheaf)
        return;
    sheaf->objects[sheaf->count++] = object;
    barn_put(cache_barn_here(cache), sheaf, BARN_FORCE);
}

/* Frees one object without a sheaf. */
static void free_bypassing_slot(struct kmem_cache *cache, unsigned slot, void *object)
{
    __typeof__(cache->ops->free) take_back = cache_op(cache, free);
    if (unlikely(take_back != NULL) && !(object = take_back(cache, object)))
        return;
    count(slot, cache->number, COUNT_free_slowpath, 1);
    cache_free_raw(cache, object);
}

/*
 * A push refuses an object that equals one of the two on top. If the end did not move during the comparison, these
 * two are free objects of this slot, and the caller frees one of them again.
 */
static bool is_on_top(const uint32_t *half, struct end end, unsigned depth, const void *object)
{
    void *const *at = sheaf_entry(end);
    bool found = (depth > 0 && __atomic_load_n(&at[-1], __ATOMIC_ACQUIRE) == object) ||
                 (depth > 1 && __atomic_load_n(&at[-2], __ATOMIC_ACQUIRE) == object);
    return found && read_once(*half) == end.at;
}

/*
 * On CPUs that reorder stores (aarch64) an entry may be read in an older state than the word, for example as a
 * restarted push of this thread left it. Before a double free is reported, a barrier on all CPUs makes a second
 * comparison exact.
 */
static bool on_top(const uint32_t *half, struct end end, unsigned depth, const void *object)
{
    if (likely(!is_on_top(half, end, depth, object)))
        return false;
    membarrier_rseq();
    return is_on_top(half, end, depth, object);
}

/*
 * Two ends: the full sheaf at the push end becomes the pop end, and the other sheaf takes the object. Returns false
 * if the slot's word has changed, or if there is no memory for a sheaf.
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
    cache_publish(cache);
    return room;
}

/*
 * What calls it, and what it calls: docs/cold-path.md, "The call tree of free". What it does in each state:
 * docs/cold-path.md, "What each event changes".
 */
void cache_free_slow(struct kmem_cache *cache, void *object)
{
    unsigned slot = 0;
    for (int i = 0; i < TRIES; i++) {
        slot = slot_current();
        if (!slot_enter(slot)) {
            slot = 0; /* the system refuses memory for the current slot's words and counters */
            break;
        }
        cache_decay(slot);
        if (cache_is_far(cache, slot)) {
            if (cache_op(cache, free_far)(cache, slot, object))
                return;
            break;
        }
        uint64_t top = read_once(slot_words(slot, word_id(cache->number))->top);
        if (unlikely(top_claimed(top))) {
            count(slot, cache->number, COUNT_claimed, 1);
            break;
        }
        struct end end = cache->lifo ? top_pop_end(top) : top_push_end(top);
        if (end.at) {
            unsigned depth = end_depth(end);
            if (unlikely(on_top(slot_push_end(slot, cache_push_id(cache)), end, depth, object)))
                misuse_report("double free of", object, cache->name);
            if (depth < sheaf_containing(end)->capacity) {
                if (slot_push(cache_push_id(cache), object))
                    return;
                continue;
            }
        }
        if (!cache_has_sheaves(cache))
            break;
        if (!cache->lifo && end.at &&
            ends_due(end_holds(top_pop_end(top)), end_depth(end), sheaf_containing(end)->capacity)) {
            bool done = ends_swap(slot, word_id(cache->number)) ? slot_push(cache_push_id(cache), object)
                                                                : free_exchanged(cache, slot, top, object);
            if (done)
                return;
            continue;
        }
        if (unlikely(cache_is_sparse(cache)) && sparse_free(cache, slot, top, object)) {
            cache_publish(cache);
            return;
        }
        struct sheaf *sheaf = find_room(cache, slot, top);
        if (!sheaf)
            break;
        sheaf->objects[sheaf->count++] = object;
        count(slot, cache->number, COUNT_free_slowpath, 1);
        ends_replace_push(cache, slot, top, sheaf);
        cache_publish(cache);
        return;
    }
    free_bypassing_slot(cache, slot, object);
}
