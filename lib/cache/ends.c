#include "cache/ends.h"
#include "cache/sheaves.h"
#include "cache/stops.h"

#include <string.h>

/* ---- accounts ---- */

struct ends_account ends_account(const struct kmem_cache *cache, uint64_t top)
{
    if (unlikely(top_held(top))) /* a takeover owns the sheaves and may be changing their accounts */
        return (struct ends_account){0};
    uint32_t pop_end = top_pop_end(top), push_end = cache->lifo ? 0 : top_push_end(top);
    struct ends_account a = {.pop_depth = end_holds(pop_end), .push_depth = end_holds(push_end)};
    if (unlikely(cache->ops != NULL) && stops_account(cache, top, &a))
        return a;
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
    __typeof__(cache->ops->draw) draw = cache_op(cache, draw);
    if (unlikely(draw != NULL) && ends.pop) {
        uint64_t top;
        uint32_t pops = draw(cache, &ends.due, stops_far(cache, &ends)); /* sets ends.due, so it comes first */
        if (stops_arm(cache, ends, pops, &top))
            return top;
    }
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
    atomic_thread_fence(memory_order_acquire); /* the account is not read before the word */
    struct ends_account a = ends_account(cache, top);
    struct ends ends = {
        .pop = top_pop_end(top) ? sheaf_containing(top_pop_end(top)) : NULL,
        .push = !cache->lifo && top_push_end(top) ? sheaf_containing(top_push_end(top)) : NULL,
    };
    if (a.pops)
        count(slot, cache->number, COUNT_alloc_fastpath, a.pops);
    if (a.pushes)
        count(slot, cache->number, COUNT_free_fastpath, a.pushes);
    __typeof__(cache->ops->popped) popped = cache_op(cache, popped);
    if (unlikely(popped != NULL))
        popped(a.pops);
    if (unlikely(cache->ops != NULL))
        stops_fold(cache, top, &ends, &a);
    if (ends.pop)
        ends.pop->count = (uint16_t)a.pop_depth;
    if (ends.push)
        ends.push->count = (uint16_t)a.push_depth;
    return ends;
}

/* ---- detached ends ---- */

bool ends_detach(struct kmem_cache *cache, unsigned slot, uint64_t top, struct ends *ends)
{
    *ends = (struct ends){.pop = NULL};
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
    uint64_t top = ends_top(cache, ends);
    if (likely(slot_install(slot, SLOT_ID(cache->number), 0, top)))
        return;
    count(slot, cache->number, COUNT_install_fail, 1);
    ends = ends_fold(cache, slot, top); /* undoes what ends_top() did; no operation was counted */
    if (ends.pop)
        cache_put_sheaf(cache, slot, ends.pop);
    if (ends.push)
        cache_put_sheaf(cache, slot, ends.push);
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
 * A load that pops and pushes equally often exchanges the ends each time the pop end runs empty. After every
 * EXCHANGES exchanges in the slow path, ends_exchange() decides about growth. If the slot had few other slow calls
 * meanwhile, the class is hot: its sheaves grow by a step and are filled up, so that exchanges become rare. At
 * most EXCHANGE_BYTES of objects circulate, because these should stay in the first-level cache beside the
 * program's own data. Otherwise the capacity is settled, and ends_swap() exchanges the ends until an account is
 * full; then ends_exchange() decides again.
 *
 * `link` of the sheaf at the pop end holds the slot's number of slow calls when the exchanges began. A restarted
 * section may overwrite it, so it is a hint.
 */
#define EXCHANGES      8
#define HOT            (2 * EXCHANGES) /* most slow calls of the slot during EXCHANGES exchanges of a hot class */
#define EXCHANGE_BYTES (16u << 10)

bool ends_swap(unsigned slot, uintptr_t id)
{
    const struct slot_words *words = slot_words(slot, id);
    const uint32_t *half = (const uint32_t *)&words->top; /* one load of both would wait for the stores of each */
    uint32_t pop_end = read_once(half[0]), push_end = read_once(half[1]);
    if (unlikely(pop_end <= END_HELD || push_end <= END_HELD))
        return false;
    struct sheaf *to = sheaf_containing(pop_end), *from = sheaf_containing(push_end);
    unsigned stays = (unsigned)(sheaf_entry(pop_end) - to->objects);
    unsigned n = (unsigned)(sheaf_entry(push_end) - from->objects), capacity = to->capacity;
    uint64_t spare = atomic_load_explicit(&words->spare, memory_order_relaxed);
    bool settled = (spare & (SPARE_SETTLED | SPARE_CAPACITY)) == (SPARE_SETTLED | (uint64_t)capacity << 32);
    return settled && from->capacity == capacity && ends_due(stays, n, capacity) &&
           slot_exchange(slot, id, top_of(pop_end, push_end), from, to, n - stays);
}

/* Fill the sheaf up to `want` objects, or a larger one that takes its place if its capacity is below `capacity`.
 * Returns the sheaf to use, which is the original if there is no memory. */
static struct sheaf *fill_up(struct kmem_cache *cache, unsigned slot, struct sheaf *sheaf, unsigned capacity,
                             unsigned want)
{
    unsigned n = sheaf->count;
    struct sheaf *into = sheaf->capacity < capacity ? empty_sheaf_alloc(capacity) : sheaf;
    if (!into)
        return sheaf;
    if (into != sheaf) {
        memcpy(into->objects, sheaf->objects, n * sizeof(void *));
        sheaf->count = 0;
        empty_sheaf_free(sheaf);
    }
    unsigned more = n < want ? slab_take(&cache->slab, into->objects + n, want - n) : 0;
    count(slot, cache->number, COUNT_sheaf_refill, more);
    into->count = (uint16_t)(n + more);
    return into;
}

/* The largest number of objects that should circulate. */
static unsigned circulating_most(const struct kmem_cache *cache)
{
    unsigned bound = EXCHANGE_BYTES / cache->slab.size;
    return bound < cache->capacity ? bound : cache->capacity;
}

/* Let the slot's sheaves grow by one step within circulating_most(), and fill this one up if they grew or if it is
 * less than half full. Returns the sheaf that becomes the pop end. */
static struct sheaf *grow(struct kmem_cache *cache, unsigned slot, struct sheaf *filled, unsigned capacity)
{
    unsigned bound = circulating_most(cache);
    unsigned larger = 2 * capacity <= bound ? cache_next_capacity(cache, slot) : capacity;
    unsigned want = larger < bound ? larger : bound;
    return 2u * filled->count < want || larger > capacity ? fill_up(cache, slot, filled, larger, want) : filled;
}

/* Count an exchange, and decide about growth at every EXCHANGES-th one. `since` is the slot's number of slow calls
 * when the count began. Returns the sheaf that becomes the pop end. */
static struct sheaf *consider(struct kmem_cache *cache, unsigned slot, struct sheaf *filled, uint32_t since)
{
    _Atomic uint64_t *spare = &slot_words(slot, SLOT_ID(cache->number))->spare;
    uint32_t calls = (uint32_t)read_once(slot_head(slot)->slow_calls);
    uint64_t seen = atomic_load_explicit(spare, memory_order_relaxed);
    if (seen & SPARE_SETTLED && 2u * filled->count >= circulating_most(cache))
        return filled;
    if (seen & SPARE_SETTLED)
        seen = atomic_fetch_and(spare, ~(SPARE_SETTLED | SPARE_SWAPS)) & ~SPARE_SWAPS;
    unsigned exchanges = (unsigned)(seen >> SPARE_SWAP_SHIFT) % EXCHANGES;
    atomic_fetch_add(spare, SPARE_SWAP);
    if (exchanges == EXCHANGES - 1) {
        unsigned had = filled->count;
        if (calls - since <= HOT)
            filled = grow(cache, slot, filled, spare_capacity(seen));
        if (filled->count == had) /* also if the slabs had no objects; decided again at the next full account */
            atomic_fetch_or(spare, SPARE_SETTLED);
    }
    filled->link = exchanges ? since : calls;
    return filled;
}

void ends_exchange(struct kmem_cache *cache, unsigned slot, struct ends *ends)
{
    struct sheaf *emptier = ends->pop;
    count(slot, cache->number, COUNT_spare_swap, 1);
    ends->pop = consider(cache, slot, ends->push, emptier ? emptier->link : 0);
    unsigned capacity = spare_capacity(slot_words(slot, SLOT_ID(cache->number))->spare);
    if (!emptier || (!emptier->count && emptier->capacity != capacity)) {
        struct sheaf *other = empty_sheaf_alloc(capacity ? capacity : cache_next_capacity(cache, slot));
        if (other && emptier)
            empty_sheaf_free(emptier);
        emptier = other ? other : emptier;
    }
    ends->push = emptier;
}
