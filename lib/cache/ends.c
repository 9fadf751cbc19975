#include "cache/ends.h"
#include "cache/sample.h"

#include <string.h>

/* ---- accounts ---- */

struct ends_account ends_account(const struct kmem_cache *cache, uint64_t top)
{
    uint32_t pop_end = top_pop_end(top), push_end = cache->lifo ? 0 : top_push_end(top);
    struct ends_account a = {.pop_depth = end_holds(pop_end), .push_depth = end_holds(push_end)};
    if (push_end) {
        const struct sheaf *push = sheaf_containing(push_end);
        a.pushes = push->link - slot_fold_start + a.push_depth;
        a.pops = a.pushes + push->count - a.pop_depth - a.push_depth;
    } else if (pop_end) {
        const struct sheaf *pop = sheaf_containing(pop_end);
        a.pops = cache->lifo ? top_pops(top) : pop->count - a.pop_depth;
        a.pushes = cache->lifo ? a.pops + a.pop_depth - pop->count : 0;
    }
    return a;
}

uint64_t ends_top(const struct kmem_cache *cache, struct ends ends)
{
    uint32_t pop_end = end_of(ends.pop), push_end = end_of(ends.push);
    if (cache->lifo)
        return pop_end ? top_of(pop_end, slot_fold_start) : 0;
    if (ends.push) {
        ends.push->link = slot_fold_start - ends.push->count;
        ends.push->count = (uint16_t)(ends.push->count + (ends.pop ? ends.pop->count : 0));
    }
    return top_of(pop_end, push_end);
}

struct ends ends_fold(struct kmem_cache *cache, unsigned slot, uint64_t top)
{
    struct ends_account a = ends_account(cache, top);
    struct ends ends = {
        .pop = top_pop_end(top) ? sheaf_containing(top_pop_end(top)) : NULL,
        .push = !cache->lifo && top_push_end(top) ? sheaf_containing(top_push_end(top)) : NULL,
    };
    if (a.pops)
        count(slot, cache->number, COUNT_alloc_fastpath, a.pops);
    if (a.pushes)
        count(slot, cache->number, COUNT_free_fastpath, a.pushes);
    if (unlikely(cache->sampled))
        sample_passed(a.pops);
    if (ends.pop)
        ends.pop->count = (uint16_t)a.pop_depth;
    if (ends.push)
        ends.push->count = (uint16_t)a.push_depth;
    return ends;
}

/* ---- changes in hand ---- */

bool ends_detach(struct kmem_cache *cache, unsigned slot, uint64_t top, struct ends *ends)
{
    *ends = (struct ends){NULL, NULL};
    if (!top)
        return true;
    if (!slot_install(slot, SLOT_ID(cache->number), top, 0)) {
        count(slot, cache->number, COUNT_install_fail, 1);
        return false;
    }
    *ends = ends_fold(cache, slot, top);
    return true;
}

void ends_attach(struct kmem_cache *cache, unsigned slot, struct ends ends)
{
    uint16_t pushed = ends.push ? ends.push->count : 0;
    if (likely(slot_install(slot, SLOT_ID(cache->number), 0, ends_top(cache, ends))))
        return;
    count(slot, cache->number, COUNT_install_fail, 1);
    if (ends.pop)
        cache_put_sheaf(cache, slot, ends.pop);
    if (ends.push) {
        ends.push->count = pushed;
        cache_put_sheaf(cache, slot, ends.push);
    }
}

static void replace(struct kmem_cache *cache, unsigned slot, uint64_t top, bool push, struct sheaf *sheaf)
{
    struct ends ends;
    if (!ends_detach(cache, slot, top, &ends)) {
        cache_put_sheaf(cache, slot, sheaf);
        return;
    }
    struct sheaf **place = push && !cache->lifo ? &ends.push : &ends.pop;
    struct sheaf *old = *place;
    *place = sheaf;
    ends_attach(cache, slot, ends);
    if (old)
        cache_put_sheaf(cache, slot, old);
}

void ends_replace_pop(struct kmem_cache *cache, unsigned slot, uint64_t top, struct sheaf *sheaf)
{
    replace(cache, slot, top, false, sheaf);
}

void ends_replace_push(struct kmem_cache *cache, unsigned slot, uint64_t top, struct sheaf *sheaf)
{
    replace(cache, slot, top, true, sheaf);
}

/* ---- exchange ---- */

/*
 * A load that swings by less than one sheaf holds exchanges the ends each time that all objects have passed by. With
 * every EXCHANGES_TO_GROW-th exchange the slot's sheaves grow by a step and are filled up, so that exchanges become
 * rare; but not beyond EXCHANGE_BYTES of objects in each, because what circulates must stay in the first-level cache
 * beside the program's own data. From then on the capacity is settled, and ends_swap() exchanges the ends.
 */
#define EXCHANGES_TO_GROW 8
#define EXCHANGE_BYTES    (16u << 10)

bool ends_swap(unsigned slot, uintptr_t id)
{
    const struct slot_words *words = slot_words(slot, id);
    const uint32_t *half = (const uint32_t *)&words->top; /* one load of both would wait for the stores of each */
    uint32_t pop_end = read_once(half[0]), push_end = read_once(half[1]);
    if (unlikely(pop_end <= END_HELD || push_end <= END_HELD))
        return false;
    /* if the pop end is at the bottom of its sheaf; else `bottom` is an object */
    struct sheaf *to = (struct sheaf *)(void *)(sheaf_entry(pop_end) - 2), *from = sheaf_containing(push_end);
    unsigned n = (unsigned)(sheaf_entry(push_end) - from->objects);
    uint64_t spare = atomic_load_explicit(&words->spare, memory_order_relaxed);
    bool settled = (spare & (SPARE_SETTLED | SPARE_CAPACITY)) == (SPARE_SETTLED | (uint64_t)to->capacity << 32);
    return settled && n && !to->bottom && from->capacity == to->capacity &&
           slot_exchange(slot, id, top_of(pop_end, push_end), from, to, n);
}

/* With as many more objects as fit, in a larger sheaf if it must be; or as it was. */
static struct sheaf *fill_up(struct kmem_cache *cache, unsigned slot, struct sheaf *sheaf, unsigned capacity)
{
    unsigned n = sheaf->count;
    struct sheaf *into = sheaf->capacity < capacity ? empty_sheaf_alloc(capacity) : sheaf;
    if (!into)
        return sheaf;
    memcpy(into->objects, sheaf->objects, into == sheaf ? 0 : n * sizeof(void *));
    unsigned more = slab_take(&cache->slab, into->objects + n, into->capacity - n);
    count(slot, cache->number, COUNT_sheaf_refill, more);
    into->count = (uint16_t)(n + more);
    if (into != sheaf) {
        sheaf->count = 0;
        empty_sheaf_free(sheaf);
    }
    return into;
}

/*
 * What circulates becomes more, by a step. When it fills half of a sheaf that must not grow, or there is no more to
 * be had, the capacity is settled. Returns the sheaf that will be the pop end.
 */
static noinline_cold struct sheaf *grow(struct kmem_cache *cache, unsigned slot, struct sheaf *filled)
{
    _Atomic uint64_t *spare = &slot_words(slot, SLOT_ID(cache->number))->spare;
    unsigned capacity = spare_capacity(atomic_load_explicit(spare, memory_order_relaxed)), had = filled->count;
    unsigned larger = 2 * capacity * cache->slab.size <= EXCHANGE_BYTES ? cache_next_capacity(cache, slot) : capacity;
    if (larger > capacity || 2 * had < capacity)
        filled = fill_up(cache, slot, filled, larger);
    if (filled->count == had)
        atomic_fetch_or(spare, SPARE_SETTLED);
    return filled;
}

void ends_exchange(struct kmem_cache *cache, unsigned slot, struct ends *ends)
{
    _Atomic uint64_t *spare = &slot_words(slot, SLOT_ID(cache->number))->spare;
    struct sheaf *empty = ends->pop, *filled = ends->push;
    sheaf_assert(!empty || !empty->count);
    count(slot, cache->number, COUNT_spare_swap, 1);
    uint64_t seen = atomic_load_explicit(spare, memory_order_relaxed);
    if (!(seen & SPARE_SETTLED)) {
        seen = atomic_fetch_add(spare, SPARE_SWAP);
        if ((seen >> SPARE_SWAP_SHIFT) % EXCHANGES_TO_GROW == EXCHANGES_TO_GROW - 1)
            filled = grow(cache, slot, filled);
        seen = atomic_load_explicit(spare, memory_order_relaxed);
    }
    unsigned capacity = spare_capacity(seen) ? spare_capacity(seen) : cache_next_capacity(cache, slot);
    if (!empty || empty->capacity != capacity) {
        struct sheaf *other = empty_sheaf_alloc(capacity);
        if (other && empty)
            empty_sheaf_free(empty);
        empty = other ? other : empty;
    }
    ends->pop = filled;
    ends->push = empty;
}
