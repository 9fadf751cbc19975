#include "cache/bulk.h"
#include "cache/misuse.h"
#include "cache/node.h"

/*
 * Main is detached: a section puts 0 in its place, and from then on the sheaf is ours alone, as a spare that was
 * taken is. (To copy its top and move the word down afterwards would not do: the word may have come round to the same
 * value with other objects below it.) A signal handler or another thread on the slot meanwhile finds the constant
 * sheaf and installs one of its own; then ours goes where any sheaf goes. A fork meanwhile loses it to the child, as
 * every sheaf in a thread's hand.
 */

#define BULK_LEAST 16 /* for fewer, single operations cost no more than to detach main and put it back */

static bool worth_it(const struct kmem_cache *cache, size_t n)
{
    return n >= BULK_LEAST && cache->capacity && likely(!reserve_short(&cache->reserve));
}

/* NULL: there is none, or the slot is held. */
static struct sheaf *detach_main(struct kmem_cache *cache, unsigned slot)
{
    uintptr_t id = SLOT_ID(cache->number);
    uint64_t top = read_once(slot_words(slot, id)->top);
    if (!top_offset(top) || !slot_install(slot, id, top, 0))
        return NULL;
    return cache_fold(cache, slot, top);
}

static void attach_main(struct kmem_cache *cache, unsigned slot, struct sheaf *sheaf)
{
    if (!sheaf || slot_install(slot, SLOT_ID(cache->number), 0, top_of(sheaf)))
        return;
    count(slot, cache->number, COUNT_install_fail, 1);
    cache_put_sheaf(cache, slot, sheaf);
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
    struct sheaf *hand = detach_main(cache, slot);
    if (hand)
        n = draw(hand, objects, want);
    while (n < want) {
        struct sheaf *next = next_filled(cache, slot);
        if (!next)
            break;
        if (hand)
            empty_sheaf_free(hand);
        hand = next;
        n += draw(hand, objects + n, want - n);
    }
    attach_main(cache, slot, hand);
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
    if (!worth_it(cache, want) || !slot_writable(slot) || (unlikely(cache->nodes) && !node_enter(&cache, slot)))
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
    if (!worth_it(cache, n) || !slot_writable(slot) || (unlikely(cache->nodes) && node_is_far(cache, slot)))
        return 0;
    cache_decay(slot);
    size_t done = 0;
    struct sheaf *hand = detach_main(cache, slot);
    if (!hand)
        hand = empty_sheaf_alloc(cache_next_capacity(cache, slot));
    while (hand) {
        done += lay(cache, hand, objects + done, n - done);
        if (done == n)
            break;
        hand = exchange_full(cache, slot, hand);
    }
    count(slot, cache->number, COUNT_free_fastpath, done);
    attach_main(cache, slot, hand);
    cache_went_slow(cache);
    return done;
}
