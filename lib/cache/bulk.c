#include "cache/bulk.h"
#include "cache/decay.h"
#include "cache/ends.h"
#include "cache/misuse.h"
#include "cache/sheaves.h"

/*
 * The slot's ends are detached (cache/ends.h), and its sheaves are ours alone meanwhile. (To copy the top of a sheaf
 * and move the word down afterwards would not do: the word may have come round to the same value with other objects
 * below it.)
 */

#define BULK_LEAST 16 /* for fewer, single operations cost no more than to detach the ends and to attach them */

static bool worth_it(const struct kmem_cache *cache, size_t n)
{
    return n >= BULK_LEAST && cache_has_sheaves(cache);
}

/* The slot's sheaves; none where it has none or is held. */
static struct ends detach(struct kmem_cache *cache, unsigned slot)
{
    struct ends ends = {NULL, NULL};
    uint64_t top = read_once(slot_words(slot, SLOT_ID(cache->number))->top);
    if (!top_held(top))
        ends_detach(cache, slot, top, &ends);
    return ends;
}

/* ---- taking ---- */

/* The slot's spare, else a sheaf of the barn; NULL: neither holds anything. */
static struct sheaf *next_filled(struct kmem_cache *cache, unsigned slot)
{
    struct sheaf *spare = cache_take_spare(slot, SLOT_ID(cache->number));
    if (spare && spare->count)
        return spare;
    if (spare)
        empty_sheaf_free(spare);
    struct barn *barn = cache_barn_here(cache);
    struct sheaf *full = barn_get(barn);
    count(slot, cache->number, full ? COUNT_barn_get : COUNT_barn_get_fail, 1);
    if (!full)
        barn_missed(barn, cache->barn_least, cache->barn_most);
    return full;
}

static size_t draw(struct sheaf *sheaf, void **objects, size_t want)
{
    size_t n = want < sheaf->count ? want : sheaf->count;
    void *const *at = sheaf->objects + sheaf->count;
    for (size_t i = 0; i < n; i++)
        objects[i] = *--at;
    sheaf->count = (uint16_t)(sheaf->count - n);
    return n;
}

static size_t take_from_sheaves(struct kmem_cache *cache, unsigned slot, void **objects, size_t want)
{
    size_t n = 0;
    struct ends hand = detach(cache, slot);
    if (hand.pop)
        n = draw(hand.pop, objects, want);
    if (hand.push)
        n += draw(hand.push, objects + n, want - n);
    while (n < want) {
        struct sheaf *next = next_filled(cache, slot);
        if (!next)
            break;
        if (hand.pop)
            empty_sheaf_free(hand.pop);
        hand.pop = next;
        n += draw(next, objects + n, want - n);
    }
    ends_attach(cache, slot, hand);
    if (n)
        count(slot, cache->number, COUNT_alloc_fastpath, n);
    return n;
}

static size_t take_from_slabs(struct kmem_cache *cache, unsigned slot, void **objects, size_t want)
{
    size_t n = 0;
    while (want - n >= BULK_LEAST) { /* what is left over fills a sheaf, by a single allocation */
        unsigned most = want - n < SLAB_BATCH ? (unsigned)(want - n) : SLAB_BATCH;
        unsigned got = slab_take_ascending(&cache->slab, objects + n, most);
        n += got;
        if (got < most)
            break;
    }
    if (n)
        count(slot, cache->number, COUNT_alloc_slowpath, n);
    return n;
}

size_t bulk_take(struct kmem_cache *cache, void **objects, size_t want)
{
    unsigned slot = slot_counting();
    __typeof__(cache->ops->enter) enter = cache_op(cache, enter);
    if (!worth_it(cache, want) || !slot_writable(slot) || (unlikely(enter != NULL) && !enter(&cache, slot)))
        return 0;
    cache_decay(slot);
    size_t n = take_from_sheaves(cache, slot, objects, want);
    if (n < want)
        n += take_from_slabs(cache, slot, objects + n, want - n);
    cache_went_slow(cache);
    return n;
}

/* ---- giving ---- */

/* Each is compared with the two on top, as a push does: below the first lie words that are no object's address. */
static size_t lay(struct kmem_cache *cache, struct sheaf *sheaf, void *const *objects, size_t n)
{
    size_t room = (size_t)sheaf->capacity - sheaf->count;
    void **at = sheaf->objects + sheaf->count;
    n = n < room ? n : room;
    for (size_t i = 0; i < n; i++) {
        if (unlikely(at[-1] == objects[i] || at[-2] == objects[i]))
            misuse_report("double free of", objects[i], cache->name);
        *at++ = objects[i];
    }
    sheaf->count = (uint16_t)(sheaf->count + n);
    return n;
}

/* A full sheaf goes on; an empty one in its place, NULL where there is none. */
static struct sheaf *exchange_full(struct kmem_cache *cache, unsigned slot, struct sheaf *full)
{
    if (!cache_put_spare(slot, SLOT_ID(cache->number), full) && !cache_barn_put(cache, slot, full, false)) {
        if (cache_flush_sheaf(cache, slot, full))
            return full;
        cache_barn_put(cache, slot, full, true);
    }
    return empty_sheaf_alloc(cache_next_capacity(cache, slot));
}

size_t bulk_give(struct kmem_cache *cache, void *const *objects, size_t n)
{
    unsigned slot = slot_counting();
    if (!worth_it(cache, n) || !slot_writable(slot) || cache_is_far(cache, slot))
        return 0;
    cache_decay(slot);
    size_t done = 0;
    struct ends hand = detach(cache, slot);
    struct sheaf **into = cache->lifo ? &hand.pop : &hand.push;
    if (!*into)
        *into = empty_sheaf_alloc(cache_next_capacity(cache, slot));
    while (*into) {
        done += lay(cache, *into, objects + done, n - done);
        if (done == n)
            break;
        if (!cache->lifo && !(hand.pop && hand.pop->count))
            ends_exchange(cache, slot, &hand);
        else
            *into = exchange_full(cache, slot, *into);
        if (!*into)
            *into = empty_sheaf_alloc(cache_next_capacity(cache, slot));
    }
    count(slot, cache->number, COUNT_free_fastpath, done);
    ends_attach(cache, slot, hand);
    cache_went_slow(cache);
    return done;
}
