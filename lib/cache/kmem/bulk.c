#include "cache/kmem/bulk.h"
#include "cache/decay.h"
#include "cache/ends.h"
#include "cache/misuse.h"
#include "cache/sheaves.h"

/*
 * Both operations detach the slot's ends (cache/ends.h), so that its sheaves belong to the caller alone. Copying
 * the top of a sheaf and lowering the word afterwards would be wrong: a word may return to the same value with
 * other objects below it.
 */

#define BULK_LEAST 16 /* for fewer objects, single operations cost no more than detaching and attaching the ends */

static bool worth_it(const struct kmem_cache *cache, size_t n)
{
    return n >= BULK_LEAST && cache_has_sheaves(cache);
}

/* Detach the slot's sheaves. Both are NULL if the slot has none, if a remote drain holds its ends, or if its word has
 * just changed. */
static struct ends detach(struct kmem_cache *cache, unsigned slot)
{
    struct ends ends = {.pop = NULL};
    uint64_t top = read_once(slot_words(slot, word_id(cache->number))->top);
    if (!top_claimed(top))
        ends_detach(cache, slot, top, &ends);
    return ends;
}

/* ---- taking ---- */

/* Returns the slot's spare, or else a sheaf of the barn; NULL if neither holds an object. */
static struct sheaf *next_filled(struct kmem_cache *cache, unsigned slot)
{
    struct sheaf *spare = cache_take_spare(slot, word_id(cache->number));
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
    while (want - n >= BULK_LEAST) { /* the last few are left to a single allocation, which refills a sheaf */
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
    if (!worth_it(cache, want) || !slot_writable(slot) || !cache_enter(&cache, slot))
        return 0;
    cache_decay(slot);
    size_t n = take_from_sheaves(cache, slot, objects, want);
    if (n < want)
        n += take_from_slabs(cache, slot, objects + n, want - n);
    cache_publish(cache);
    return n;
}

/* ---- giving ---- */

/* Each object is compared with the two entries below its own, as in a push. Below the first entry these are words
 * 1 and 0 of the sheaf, which equal no object's address. */
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

/* Put the full sheaf into the spare's place, the barn or the slabs. Returns an empty sheaf to use instead, or NULL
 * if there is no memory. */
static struct sheaf *exchange_full(struct kmem_cache *cache, unsigned slot, struct sheaf *full)
{
    if (!cache_put_spare(slot, word_id(cache->number), full) && !cache_barn_put(cache, slot, full, false)) {
        if (cache_flush_sheaf(cache, slot, full))
            return full;
        cache_barn_put(cache, slot, full, true);
    }
    return empty_sheaf_alloc(cache_next_capacity(cache, slot));
}

size_t bulk_free(struct kmem_cache *cache, void *const *objects, size_t n)
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
    cache_publish(cache);
    return done;
}
