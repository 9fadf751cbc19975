#include "cache/ends.h"
#include "cache/sheaves.h"

#include <string.h>

/* ---- accounts ---- */

/*
 * The limit in an account: it says from where `pushes` counts.
 *
 *   none    from slot_fold_start
 *   code    from a number such that ends_swap() fails before the slot has made as many pops as the code says. Codes
 *           have two bits after the leading one, so a limit is rounded down by less than a quarter
 *   still   ends_swap() fails at once. `count_then` of the sheaf at the pop end is the number of its objects
 */
struct limit {
    unsigned code;
};
#define NO_LIMIT ((struct limit){0})
#define STILL    ((struct limit){63})

static bool is_still(struct limit limit)
{
    return limit.code == STILL.code;
}

#define LIMIT_LEAST 4u
static struct limit limit_for(uint32_t pops)
{
    unsigned shift = pops < LIMIT_LEAST ? 0 : 29 - (unsigned)__builtin_clz(pops);
    unsigned code = 1 + 4 * shift + (pops >> shift & 3);
    return pops < LIMIT_LEAST || code >= STILL.code ? NO_LIMIT : (struct limit){code};
}

static uint32_t limit_pops(struct limit limit)
{
    return (LIMIT_LEAST + (limit.code - 1) % 4) << (limit.code - 1) / 4;
}

/* The number from which `pushes` counts. */
static uint32_t pushes_start(unsigned objects, struct limit limit)
{
    return limit.code ? objects - 1 - limit_pops(limit) : slot_fold_start;
}

/* The objects in both sheaves when they were attached, and in the upper six bits the limit. */
#define OBJECT_BITS 10
#define OBJECTS     ((1u << OBJECT_BITS) - 1)
_Static_assert(2 * ((1u << SHEAF_ORDER_MAX) - 3) <= OBJECTS, "the objects of both sheaves fit their bits");
static struct ends_total total_of(unsigned objects, struct limit limit)
{
    return (struct ends_total){(uint16_t)(objects | limit.code << OBJECT_BITS)};
}
static unsigned total_objects(struct ends_total total)
{
    return total.bits & OBJECTS;
}
static struct limit total_limit(struct ends_total total)
{
    return (struct limit){total.bits >> OBJECT_BITS};
}

struct ends_account ends_account(const struct kmem_cache *cache, uint64_t top)
{
    if (unlikely(top_claimed(top))) /* a remote drain owns the sheaves and may be changing their accounts */
        return (struct ends_account){0};
    struct end pop_end = top_pop_end(top), push_end = cache->lifo ? (struct end){0} : top_push_end(top);
    struct ends_account a = {.pop_depth = end_holds(pop_end), .push_depth = end_holds(push_end)};
    if (push_end.at) {
        const struct attached_sheaf *push = sheaf_containing(push_end);
        unsigned objects = total_objects(push->total);
        struct limit limit = total_limit(push->total);
        /* The word has a pop end where an account is still. A reader without the slot may see the account of a later
         * word, and then gets a wrong number, but must not look for a sheaf where none is. */
        unsigned in_pop = is_still(limit) && pop_end.at ? sheaf_containing(pop_end)->count_then : 0;
        a.pushes = a.push_depth + (is_still(limit) ? in_pop - objects : push->pushes - pushes_start(objects, limit));
        a.pops = a.pushes + objects - a.pop_depth - a.push_depth;
    } else if (pop_end.at) {
        const struct attached_sheaf *pop = sheaf_containing(pop_end);
        a.pops = cache->lifo ? top_pops(top) - pop->pops_start : pop->count_then - a.pop_depth;
        a.pushes = cache->lifo ? a.pops + a.pop_depth - pop->count_then : 0;
    }
    return a;
}

static uint32_t limit_now(const struct kmem_cache *cache, unsigned slot)
{
    __typeof__(cache->ops->limit) limit = cache_op(cache, limit);
    return unlikely(limit != NULL) ? limit(cache, slot) : UINT32_MAX;
}

static uint64_t lifo_top(struct sheaf *sheaf, uint32_t most)
{
    struct attached_sheaf *end = sheaf_attached(sheaf);
    end->pops_start = most < 0u - slot_fold_start ? UINT32_MAX - most : slot_fold_start;
    return top_of_lifo(end_of(sheaf), end->pops_start);
}

/* The limit in the account of two ends. */
static struct limit ends_limit(const struct ends *ends, uint32_t most)
{
    if (!ends->pop || most >= 0u - slot_fold_start)
        return NO_LIMIT;
    struct limit limit = limit_for(most);
    return limit.code && limit_pops(limit) >= ends->pop->count ? limit : STILL;
}

/* ends_top() with that limit. */
static uint64_t limited_top(const struct kmem_cache *cache, struct ends ends, uint32_t most)
{
    if (cache->lifo)
        return ends.pop ? lifo_top(ends.pop, most) : 0;
    uint64_t top = top_of(end_of(ends.pop), end_of(ends.push));
    if (ends.push) {
        struct attached_sheaf *push = sheaf_attached(ends.push);
        struct limit limit = ends_limit(&ends, most);
        unsigned objects = ends.push->count + (ends.pop ? ends.pop->count : 0u);
        push->pushes = is_still(limit) ? UINT32_MAX : pushes_start(objects, limit) - ends.push->count;
        push->total = total_of(objects, limit);
    }
    return top;
}

uint64_t ends_top(const struct kmem_cache *cache, unsigned slot, struct ends ends)
{
    return limited_top(cache, ends, limit_now(cache, slot));
}

struct ends ends_fold(struct kmem_cache *cache, unsigned slot, uint64_t top)
{
    atomic_thread_fence(memory_order_acquire); /* the account is not read before the word */
    struct ends_account a = ends_account(cache, top);
    struct ends ends = {
        .pop = top_pop_end(top).at ? sheaf_detached(sheaf_containing(top_pop_end(top))) : NULL,
        .push = !cache->lifo && top_push_end(top).at ? sheaf_detached(sheaf_containing(top_push_end(top))) : NULL,
    };
    if (a.pops)
        count(slot, cache->number, COUNT_alloc_fastpath, a.pops);
    if (a.pushes)
        count(slot, cache->number, COUNT_free_fastpath, a.pushes);
    __typeof__(cache->ops->popped) popped = cache_op(cache, popped);
    if (unlikely(popped != NULL))
        popped(a.pops);
    cache_counted(cache, slot, a.pops);
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
    if (!slot_install(slot, word_id(cache->number), top, 0)) {
        count(slot, cache->number, COUNT_install_fail, 1);
        return false;
    }
    *ends = ends_fold(cache, slot, top);
    return true;
}

/*
 * The sheaf at the pop end gives away the objects that are beyond its limit. If there is neither room at the push end
 * nor a sheaf for them, they stay.
 */
static void shorten(struct kmem_cache *cache, unsigned slot, struct ends *ends, uint32_t most)
{
    struct sheaf *pop = ends->pop, *push = ends->push, *to = push;
    if (!pop || pop->count <= most)
        return;
    unsigned n = pop->count - most;
    if (!push || push->capacity - push->count < (int)n)
        to = empty_sheaf_alloc(pop->capacity);
    if (!to)
        return;
    if (to != push)
        to->count = 0;
    memcpy(to->objects + to->count, pop->objects, n * sizeof(void *));
    memmove(pop->objects, pop->objects + n, most * sizeof(void *));
    to->count = (uint16_t)(to->count + n);
    pop->count = (uint16_t)most;
    if (to != push)
        cache_put_sheaf(cache, slot, to);
}

void ends_attach(struct kmem_cache *cache, unsigned slot, struct ends ends)
{
    uint32_t most = limit_now(cache, slot);
    if (unlikely(most != UINT32_MAX) && !cache->lifo)
        shorten(cache, slot, &ends, most);
    uint64_t top = limited_top(cache, ends, most);
    if (likely(slot_install(slot, word_id(cache->number), 0, top)))
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
 * `since` of the sheaf at the pop end holds the slot's number of slow calls when the exchanges began. A restarted
 * section may overwrite it, so it is a hint.
 */
#define EXCHANGES      8
#define HOT            (2 * EXCHANGES) /* most slow calls of the slot during EXCHANGES exchanges of a hot class */
#define EXCHANGE_BYTES (16u << 10)

bool ends_swap(unsigned slot, struct word_id id)
{
    const struct slot_words *words = slot_words(slot, id);
    const uint32_t *half = (const uint32_t *)&words->top; /* one load of both would wait for the stores of each */
    struct end pop_end = {read_once(half[0])}, push_end = {read_once(half[1])};
    if (unlikely(pop_end.at <= END_CLAIMED || push_end.at <= END_CLAIMED))
        return false;
    struct attached_sheaf *to = sheaf_containing(pop_end), *from = sheaf_containing(push_end);
    unsigned stays = (unsigned)(sheaf_entry(pop_end) - to->objects);
    unsigned n = (unsigned)(sheaf_entry(push_end) - from->objects), capacity = to->capacity;
    uint64_t spare = atomic_load_explicit(&words->spare, memory_order_relaxed);
    bool settled = (spare & (SPARE_SETTLED | SPARE_CAPACITY)) == spare_with_capacity(SPARE_SETTLED, capacity);
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
static struct sheaf *consider(struct kmem_cache *cache, unsigned slot, struct sheaf *filled, struct slow_calls since)
{
    _Atomic uint64_t *spare = &slot_words(slot, word_id(cache->number))->spare;
    struct slow_calls now = {(uint32_t)read_once(slot_head(slot)->slow_calls)};
    uint64_t seen = atomic_load_explicit(spare, memory_order_relaxed);
    if (seen & SPARE_SETTLED && 2u * filled->count >= circulating_most(cache))
        return filled;
    if (seen & SPARE_SETTLED)
        seen = atomic_fetch_and(spare, ~(SPARE_SETTLED | SPARE_SWAPS)) & ~SPARE_SWAPS;
    unsigned exchanges = spare_swaps(seen) % EXCHANGES;
    atomic_fetch_add(spare, SPARE_SWAP);
    if (exchanges == EXCHANGES - 1) {
        unsigned had = filled->count;
        if (now.n - since.n <= HOT)
            filled = grow(cache, slot, filled, spare_capacity(seen));
        if (filled->count == had) /* also if the slabs had no objects; decided again at the next full account */
            atomic_fetch_or(spare, SPARE_SETTLED);
    }
    filled->since = exchanges ? since : now;
    return filled;
}

void ends_exchange(struct kmem_cache *cache, unsigned slot, struct ends *ends)
{
    struct sheaf *emptier = ends->pop;
    count(slot, cache->number, COUNT_spare_swap, 1);
    ends->pop = consider(cache, slot, ends->push, emptier ? emptier->since : (struct slow_calls){0});
    unsigned capacity = spare_capacity(slot_words(slot, word_id(cache->number))->spare);
    if (!emptier || (!emptier->count && emptier->capacity != capacity)) {
        struct sheaf *other = empty_sheaf_alloc(capacity ? capacity : cache_next_capacity(cache, slot));
        if (other && emptier)
            empty_sheaf_free(emptier);
        emptier = other ? other : emptier;
    }
    ends->push = emptier;
}
