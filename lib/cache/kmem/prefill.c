#include "diagnostics/feature/instrument.h"
#include "diagnostics/feature/fail.h"
#include "cache/decay.h"
#include "cache/misuse.h"
#include "cache/sheaves.h"
#include "cache/kmem/object.h"
#include "cache/kmem/reserve.h"

#include <errno.h>
#include <string.h>

/*
 * Prefilled sheaves belong to the user, with the objects in them.
 *
 * The bottom word of such a sheaf holds LENT and the number of its cache. `next` leads to further sheaves if
 * more objects were requested than one sheaf holds or the cache's capacity allows ("oversize"). Sheaves are filled
 * while no other thread can reach them, and are linked to the user's sheaf only when all objects are there. So a
 * refill that fails changes nothing.
 *
 * No lock is held on entry or exit; the locks of the slabs and of remote drains are taken in between. A sheaf leaves
 * the slot and returns to it by one exchange of the spare's word, so all functions work in signal handlers, except
 * on a sheaf that the interrupted code is using. If the handler cannot get the slabs' lock, prefilling fails.
 * Fork: the user's sheaves are memory like any other, and the child has a copy. Those that another thread had or
 * was filling stay in use in the child forever.
 */

#define LENT       (1ull << 63)
#define SHEAF_MOST sheaf_capacity_of(SHEAF_ORDER_MAX)

static uint64_t lent_mark(const struct kmem_cache *cache)
{
    return LENT | cache->number;
}

/* Check that the handle is a prefilled sheaf of the cache, and set *cache to the sibling of its objects. */
static struct sheaf *lent(struct kmem_cache **cache, struct slab_sheaf *handle)
{
    struct sheaf *sheaf = (struct sheaf *)handle;
    uint64_t number = sheaf->bottom & ~LENT;
    if (likely(sheaf->bottom == lent_mark(*cache)))
        return sheaf;
    if (unlikely(!(sheaf->bottom & LENT) || number >= CACHE_MAX || !cache_in_use(cache_at(number)) ||
                 cache_at(number)->home != (*cache)->home))
        misuse_report("not a prefilled sheaf of this cache:", sheaf, (*cache)->name);
    *cache = cache_at(number);
    return sheaf;
}

static struct sheaf *next_of(const struct sheaf *sheaf)
{
    return sheaf->next ? sheaf_at(sheaf->next) : NULL;
}

static unsigned total(const struct sheaf *sheaf)
{
    unsigned n = 0;
    for (; sheaf; sheaf = next_of(sheaf))
        n += sheaf->count;
    return n;
}

/* Move as many objects as fit. */
static void pour(struct sheaf *into, struct sheaf *from)
{
    unsigned room = (unsigned)(into->capacity - into->count);
    unsigned n = from->count < room ? from->count : room;
    memcpy(into->objects + into->count, from->objects + from->count - n, n * sizeof(void *));
    into->count = (uint16_t)(into->count + n);
    from->count = (uint16_t)(from->count - n);
}

/* ---- returning private sheaves ---- */

static void discard_all(struct kmem_cache *cache, unsigned slot, struct sheaf *sheaf)
{
    while (sheaf) {
        struct sheaf *next = next_of(sheaf);
        cache_discard_sheaf(cache, slot, sheaf);
        sheaf = next;
    }
}

/* Put the sheaf into the spare's place, or else into the barn, or else flush it. Returns whether it became the
 * spare. */
static bool put_back(struct kmem_cache *cache, unsigned slot, struct sheaf *sheaf)
{
    bool fits = sheaf->capacity <= cache->capacity && !cache_is_short(cache);
    if (fits && cache_grow_sheaves(cache, slot, sheaf->capacity, false) &&
        cache_put_spare(slot, word_id(cache->number), sheaf))
        return true;
    if (fits && sheaf->count && cache_barn_put(cache, slot, sheaf, false))
        return false;
    cache_discard_sheaf(cache, slot, sheaf);
    return false;
}

/* ---- filling private sheaves ---- */

static void fill_from_barn(struct kmem_cache *cache, unsigned slot, struct sheaf *sheaf, unsigned least)
{
    struct barn *barn = cache_barn_here(cache);
    while (sheaf->count < least) {
        struct sheaf *full = barn_get(barn);
        count(slot, cache->number, full ? COUNT_barn_get : COUNT_barn_get_fail, 1);
        if (!full)
            return;
        pour(sheaf, full);
        barn_put_rest(barn, full);
    }
}

static void fill_from_slabs(struct kmem_cache *cache, unsigned slot, struct sheaf *sheaf)
{
    unsigned room = (unsigned)(sheaf->capacity - sheaf->count);
    unsigned n = slab_take(&cache->slab, sheaf->objects + sheaf->count, room);
    sheaf->count = (uint16_t)(sheaf->count + n);
    count(slot, cache->number, COUNT_sheaf_refill, n);
}

/* Fill the sheaf to at least `least` objects, at best to its capacity. If memory is short, the objects in the
 * sheaves of other slots are drained to the slabs first. Returns false if there were too few. */
static bool fill(struct kmem_cache *cache, unsigned slot, struct sheaf *sheaf, unsigned least, gfp_t flags)
{
    fill_from_barn(cache, slot, sheaf, least);
    if (sheaf->count < least)
        fill_from_slabs(cache, slot, sheaf);
    if (unlikely(sheaf->count < least)) {
        cache_drain(cache);
        fill_from_slabs(cache, slot, sheaf);
    }
    void *object;
    while (unlikely(sheaf->count < least) && (flags & __GFP_MEMALLOC) && (object = reserve_take(cache)))
        sheaf->objects[sheaf->count++] = object;
    return sheaf->count >= least;
}

/* Returns an empty sheaf for `best` objects or, if memory is short, for `least`. Drains the cache before it fails
 * and returns NULL. */
static struct sheaf *empty_for(struct kmem_cache *cache, unsigned least, unsigned best)
{
    struct sheaf *sheaf = empty_sheaf_alloc(best);
    if (unlikely(!sheaf) && !(sheaf = empty_sheaf_alloc(least))) {
        cache_drain(cache);
        sheaf = empty_sheaf_alloc(least);
    }
    return sheaf;
}

/* Returns linked sheaves with at least `need` objects together, the first with room for `room`. Returns NULL, with
 * nothing changed, if there is no memory. */
static struct sheaf *collect(struct kmem_cache *cache, unsigned slot, unsigned need, unsigned room, gfp_t flags)
{
    struct sheaf *head = NULL;
    if (need > (uint64_t)space.slice_most * SLICE_SIZE / cache->slab.size)
        return NULL;
    while (need) {
        unsigned part = need < SHEAF_MOST ? need : SHEAF_MOST;
        struct sheaf *sheaf = empty_for(cache, part, part < room ? room : part);
        if (!sheaf || !fill(cache, slot, sheaf, part, flags)) {
            if (sheaf)
                cache_discard_sheaf(cache, slot, sheaf);
            discard_all(cache, slot, head);
            return NULL;
        }
        sheaf->next = 0;
        if (head) { /* the largest stays in front: its capacity marks the whole as oversize */
            sheaf->next = head->next;
            head->next = sheaf_offset(sheaf);
        } else {
            head = sheaf;
        }
        need -= part;
        room = 0;
    }
    return head;
}

/* ---- prefill ---- */

/* The capacity for a sheaf of `size` objects: at least that of the slot's next sheaves, at most the cache's. */
static unsigned capacity_for(const struct kmem_cache *cache, unsigned slot, unsigned size)
{
    if (cache->capacity_fixed)
        return cache->capacity;
    unsigned wanted = cache_next_capacity(cache, slot);
    if (wanted < size)
        wanted = sheaf_capacity_of(sheaf_order_for(size));
    return wanted < cache->capacity ? wanted : cache->capacity;
}

/* Returns a sheaf of at most the cache's capacity with `size` objects or more: the slot's spare, filled up if
 * necessary. Returns NULL if there is no memory. */
static struct sheaf *prefill(struct kmem_cache *cache, unsigned slot, unsigned size, gfp_t flags)
{
    struct sheaf *sheaf = cache_take_spare(slot, word_id(cache->number));
    if (likely(sheaf && sheaf->count >= size)) {
        count(slot, cache->number, COUNT_sheaf_prefill_fast, 1);
        return sheaf;
    }
    count(slot, cache->number, COUNT_sheaf_prefill_slow, 1);
    cache_decay(slot);
    unsigned capacity = capacity_for(cache, slot, size);
    if (!sheaf || sheaf->capacity < capacity) {
        struct sheaf *larger = empty_for(cache, size, capacity);
        if (!larger) {
            if (sheaf)
                put_back(cache, slot, sheaf);
            return NULL;
        }
        if (sheaf) {
            pour(larger, sheaf);
            empty_sheaf_free(sheaf);
        }
        sheaf = larger;
    }
    bool filled = fill(cache, slot, sheaf, size, flags);
    cache_publish(cache);
    if (filled)
        return sheaf;
    put_back(cache, slot, sheaf);
    return NULL;
}

/* Fault injection: all objects that would be fetched count as one allocation. */
static bool fails(const struct kmem_cache *cache, unsigned objects)
{
    return unlikely(cache->instruments & INSTRUMENT_FAIL) &&
           fail_now(cache->name, (size_t)objects * cache->object_size);
}

sheaf_export struct slab_sheaf *kmem_cache_prefill_sheaf(struct kmem_cache *cache, gfp_t flags, unsigned size)
{
    if (!size) {
        errno = EINVAL;
        return NULL;
    }
    unsigned slot = slot_counting();
    cache_enter(&cache, slot); /* if the node is not known now, any sibling will do */
    struct sheaf *sheaf;
    if (size <= cache->capacity) {
        sheaf = prefill(cache, slot, size, flags);
        if (sheaf)
            sheaf->next = 0;
    } else {
        count(slot, cache->number, COUNT_sheaf_prefill_oversize, 1);
        sheaf = fails(cache, size) ? NULL : collect(cache, slot, size, 0, flags);
        cache_publish(cache);
    }
    if (unlikely(!sheaf))
        return kmem_alloc_failed(cache);
    sheaf->bottom = lent_mark(cache);
    count(slot, cache->number, COUNT_prefill_objects, total(sheaf));
    return (struct slab_sheaf *)sheaf;
}

/* Link `more` behind the last sheaf. If the first of `more` is empty, it is freed instead. */
static void append(struct sheaf *sheaf, struct sheaf *more)
{
    struct sheaf *next = next_of(more);
    if (!more->count) {
        empty_sheaf_free(more);
        more = next;
    }
    if (!more)
        return;
    while (sheaf->next)
        sheaf = sheaf_at(sheaf->next);
    sheaf->next = sheaf_offset(more);
}

sheaf_export int kmem_cache_refill_sheaf(struct kmem_cache *cache, gfp_t flags, struct slab_sheaf **handle,
                                         unsigned size)
{
    struct sheaf *sheaf = lent(&cache, *handle);
    unsigned has = total(sheaf);
    if (has >= size)
        return 0;
    unsigned slot = slot_counting();
    unsigned room = (unsigned)(sheaf->capacity - sheaf->count);
    bool oversize = sheaf->capacity > cache->capacity;
    bool failed = fails(cache, size - has);
    struct sheaf *more = failed ? NULL : collect(cache, slot, size - has, oversize ? 0 : room, flags);
    if (!more) {
        kmem_alloc_failed(cache);
        return -ENOMEM;
    }
    count(slot, cache->number, COUNT_prefill_objects, total(more));
    pour(sheaf, more);
    append(sheaf, more);
    return 0;
}

/* ---- use and return ---- */

/* Refill the empty sheaf from those linked to it. Returns false if they are empty as well. */
static noinline_cold bool fetch(struct sheaf *sheaf)
{
    struct sheaf *next;
    while (!sheaf->count && (next = next_of(sheaf))) {
        pour(sheaf, next);
        if (next->count)
            break;
        sheaf->next = next->next;
        empty_sheaf_free(next);
    }
    return sheaf->count != 0;
}

sheaf_export void *kmem_cache_alloc_from_sheaf(struct kmem_cache *cache, gfp_t flags, struct slab_sheaf *handle)
{
    struct sheaf *sheaf = lent(&cache, handle);
    if (unlikely(!sheaf->count) && !fetch(sheaf)) {
        errno = ENOMEM;
        return NULL;
    }
    void *object = sheaf->objects[--sheaf->count];
    count(slot_counting(), cache->number, COUNT_alloc_prefilled, 1);
    object = kmem_present(cache, object);
    if (flags & __GFP_ZERO)
        memset(object, 0, cache->object_size);
    return object;
}

sheaf_export unsigned kmem_cache_sheaf_size(const struct slab_sheaf *handle)
{
    return total((const struct sheaf *)handle);
}

sheaf_export void kmem_cache_return_sheaf(struct kmem_cache *cache, gfp_t flags, struct slab_sheaf *handle)
{
    (void)flags;
    if (!handle)
        return;
    struct sheaf *sheaf = lent(&cache, handle);
    unsigned slot = slot_counting();
    struct sheaf *more = next_of(sheaf);
    count(slot, cache->number, COUNT_prefill_returned, total(sheaf));
    sheaf->bottom = 0;
    sheaf->next = 0;
    discard_all(cache, slot, more);
    bool fast = put_back(cache, slot, sheaf);
    count(slot, cache->number, fast ? COUNT_sheaf_return_fast : COUNT_sheaf_return_slow, 1);
    if (unlikely(!fast))
        cache_publish(cache);
}
