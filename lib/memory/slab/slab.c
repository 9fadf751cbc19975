#include "memory/slab/slab.h"
#include "memory/slab/list.h"
#include "memory/slab/retire.h"
#include "platform/os/random.h"
#include "platform/os/hooks.h"
#include "platform/os/vm.h"

#define SMALL_SLAB_OBJECT 8192 /* larger objects have slabs of four slices */
#define EMPTY_KEPT        1

void slab_cache_init(struct slab_cache *cache, unsigned number, uint32_t size)
{
    cache->slices = size <= SMALL_SLAB_OBJECT ? 1 : 4;
    cache->objects = (uint32_t)((cache->slices * SLICE_SIZE) / size);
    cache->reciprocal = (1ull << 40) / size + 1;
    cache->number = (uint16_t)number;
    cache->lock = lock_of(number);
}

/*
 * Without memory for a permutation, objects stay in the order of addresses. If two threads race, the exchange
 * decides.
 */
void slab_cache_shuffle(struct slab_cache *cache, uint32_t size)
{
    struct shuffle *none = NULL, *made = shuffle_create(cache->objects, size);
    if (made && !__atomic_compare_exchange_n(&cache->shuffle, &none, made, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        shuffle_destroy(made);
}

void slab_cache_forget(struct slab_cache *cache)
{
    if (cache->shuffle)
        shuffle_destroy(cache->shuffle);
    cache->shuffle = NULL;
}

static uint32_t slab_index(const struct slab_cache *cache, uintptr_t offset)
{
    return (uint32_t)((offset * cache->reciprocal) >> 40);
}

static struct slab *list_fullest(const struct slab_cache *cache)
{
    for (int i = 0; i < SLAB_LISTS; i++)
        if (cache->lists[i])
            return descriptor_of(cache->lists[i]);
    return NULL;
}

/* ---- staged memory (platform/os/vm.h); the caller holds the lock, or nobody else knows the slab ---- */

/*
 * Makes at least `bytes` from the start of the slab writable. The first slabs of a small process are committed
 * piece by piece, because most of their classes never fill one. Each piece may be a mapping of its own, so larger
 * heaps commit whole slabs; so do slabs whose objects come in random order or are written before they are taken.
 */
static noinline_cold bool commit_to(const struct slab_cache *cache, struct slab *slab, size_t bytes)
{
    if (bytes <= slab->committed)
        return true;
    char *from = slab_start(slab) + slab->committed;
    size_t whole = cache->slices * SLICE_SIZE, doubled = 2ul * slab->committed;
    size_t least = cache->shuffle || cache->watched ? whole : round_up(bytes, space.page_size);
    size_t to = least > doubled ? least : doubled;
    if (to > whole || read_once(region_stats.slab_slices) >= SMALL_HEAP)
        to = whole;
    if (!vm_commit(from, to - slab->committed)) {
        to = least;
        if (!vm_commit(from, to - slab->committed)) {
            region_refused();
            return false;
        }
    }
    slab->committed = (uint32_t)to;
    return true;
}

/* How many of `n` objects from the mark up are writable, or can be made so. */
static noinline_cold unsigned commit_fresh(const struct slab_cache *cache, struct slab *slab, unsigned n)
{
    if (commit_to(cache, slab, (size_t)(slab->mark + n) * cache->size))
        return n;
    commit_to(cache, slab, (size_t)(slab->mark + 1) * cache->size);
    unsigned most = slab->committed / cache->size;
    most = most > slab->mark ? most - slab->mark : 0; /* above n if the system has become able to grant more */
    return n < most ? n : most;
}

/* ---- taking objects; the caller holds the lock ---- */

static uint64_t rotate(uint64_t bits, unsigned right)
{
    return bits >> (right & 63) | bits << (-right & 63);
}

/*
 * Takes returned objects first, in the order of addresses. Where the order is to be random, each word starts at a
 * random bit.
 */
static unsigned take_returned(const struct slab_cache *cache, struct slab *slab, void **objects, unsigned want)
{
    unsigned n = 0;
    char *start = slab_start(slab);
    uint32_t w = slab->first_word;
    while (n < want && slab->returned) {
        uint64_t bits = slab->bits[w];
        if (!bits) {
            w++;
            continue;
        }
        char *first = start + (size_t)w * 64 * cache->size;
        unsigned turn = unlikely(cache->shuffle) ? (unsigned)random_next() & 63 : 0;
        bits = rotate(bits, turn);
        do {
            objects[n++] = first + (size_t)(((unsigned)__builtin_ctzll(bits) + turn) & 63) * cache->size;
            bits &= bits - 1;
            slab->returned--;
        } while (bits && n < want);
        slab->bits[w] = rotate(bits, -turn);
    }
    slab->first_word = w;
    return n;
}

static unsigned take_fresh(const struct slab_cache *cache, struct slab *slab, void **objects, unsigned want)
{
    unsigned left = cache->objects - slab->mark;
    unsigned n = want < left ? want : left;
    if (unlikely(vm_staged))
        n = commit_fresh(cache, slab, n);
    if (unlikely(cache->shuffle)) {
        shuffle_emit(cache->shuffle, slab->start, slab->mark, slab_start(slab), objects, n);
    } else {
        char *at = slab_start(slab) + (size_t)slab->mark * cache->size;
        for (unsigned i = 0; i < n; i++, at += cache->size)
            objects[i] = at;
    }
    slab->mark += n;
    return n;
}

static unsigned take_from(struct slab_cache *cache, struct slab *slab, void **objects, unsigned want, unsigned *fresh)
{
    bool was_empty = slab_free_objects(cache, slab) == cache->objects;
    unsigned n = take_returned(cache, slab, objects, want);
    *fresh = 0;
    if (n < want)
        *fresh = take_fresh(cache, slab, objects + n, want - n);
    if (unlikely(!(n + *fresh)))
        return 0;
    cache->empty -= was_empty;
    if (unlikely(slab->holes)) {
        slab->holes = 0;
        cache->missed++;
    }
    cache->free -= n + *fresh;
    list_update(cache, slab);
    return n + *fresh;
}

/* A slab with returned objects, which need no more memory. */
static struct slab *list_returned(const struct slab_cache *cache)
{
    for (int i = 0; i < SLAB_LISTS; i++)
        for (uint32_t at = cache->lists[i]; at; at = descriptor_of(at)->next)
            if (descriptor_of(at)->returned)
                return descriptor_of(at);
    return NULL;
}

/*
 * Takes from slabs that exist, ending with the first one that supplies new objects. *built is the number of new
 * objects, which come last. A slab that supplies nothing has new objects whose memory cannot be committed.
 */
static unsigned take_listed(struct slab_cache *cache, void **objects, unsigned want, unsigned *built)
{
    unsigned n = 0;
    bool refused = false;
    struct slab *slab;
    *built = 0;
    while (n < want && !*built && (slab = unlikely(refused) ? list_returned(cache) : list_fullest(cache))) {
        unsigned got = take_from(cache, slab, objects + n, want - n, built);
        refused |= !got;
        n += got;
    }
    return n;
}

/* The user's constructor runs without the lock, because it may call the allocator. */
static void construct(const struct slab_cache *cache, void **objects, unsigned n)
{
    if (cache->ctor)
        for (unsigned i = 0; i < n; i++)
            cache->ctor((char *)objects[i] + cache->lead);
}

static void reverse(void **objects, unsigned n)
{
    for (unsigned i = 0, j = n; i + 1 < j; i++) {
        void *swap = objects[i];
        objects[i] = objects[--j];
        objects[j] = swap;
    }
}

/* ---- slabs from and to the region; the caller holds neither the cache's lock nor the region's ---- */

void slab_release(struct slab_cache *cache, struct slab *slab)
{
    uint32_t slice = slab->slice;
    if (unlikely(cache->watched))
        hooks.slab_released(cache, slice);
    for (uint32_t i = 0; i < cache->slices; i++)
        write_once(*slice_id(slice + i), 0);
    if (unlikely(cache->typesafe)) {
        slab_retire(slab);
        return;
    }
    descriptor_free(slab);
    region_free(slice);
}

static struct slab *slab_create(struct slab_cache *cache)
{
    struct slab *slab = descriptor_alloc(cache->objects);
    if (!slab)
        return NULL;
    bool zeroed;
    uint32_t slice = region_alloc_slab(cache->node, cache->slices, &zeroed);
    slab->slice = slice;
    bool refused = slice != SLICE_NONE && ((unlikely(vm_staged) && !commit_to(cache, slab, cache->size)) ||
                                           (unlikely(cache->watched) && !hooks.slab_created(cache, slice)));
    if (refused)
        region_free(slice);
    if (slice == SLICE_NONE || refused) {
        descriptor_free(slab);
        return NULL;
    }
    slab->cache = cache->number;
    slab->list = SLAB_UNLISTED;
    if (unlikely(cache->shuffle))
        slab->start = shuffle_start(cache->shuffle);
    for (uint32_t i = 0; i < cache->slices; i++) {
        slice_at(slice + i)->slab = slab->reference;
        write_once(*slice_id(slice + i), cache->id);
    }
    return slab;
}

/* ---- the interface ---- */

/* What calls it, and what it calls: docs/cold-path.md, "The call tree of malloc". */
static unsigned take(struct slab_cache *cache, void **objects, unsigned want)
{
    unsigned n = 0;
    struct slab *new = NULL;
    for (;;) {
        unsigned built;
        if (!lock_acquire(cache->lock))
            break; /* a handler interrupted the lock's holder: the caller has other sources */
        if (new) {
            cache->slabs++;
            cache->alloc_slab++;
            cache->empty++;
            cache->free += cache->objects;
            list_insert(cache, new, SLAB_EMPTIEST);
            new = NULL;
        }
        n += take_listed(cache, objects + n, want - n, &built);
        lock_release(cache->lock);
        construct(cache, objects + n - built, built);
        if (n == want)
            break;
        if (built)
            continue;
        if (!(new = slab_create(cache)))
            break;
    }
    if (unlikely(new))
        slab_release(cache, new);
    return n;
}

unsigned slab_take(struct slab_cache *cache, void **objects, unsigned want)
{
    unsigned n = take(cache, objects, want);
    reverse(objects, n);
    return n;
}

unsigned slab_take_ascending(struct slab_cache *cache, void **objects, unsigned want)
{
    return take(cache, objects, want);
}

unsigned slab_try_take(struct slab_cache *cache, void **objects, unsigned want)
{
    unsigned built;
    if (!lock_try(cache->lock))
        return 0;
    unsigned n = take_listed(cache, objects, want, &built);
    lock_release(cache->lock);
    construct(cache, objects + n - built, built);
    reverse(objects, n);
    return n;
}

/* Sets the object's bit, if the pointer is valid, and *into to its slab. */
static enum slab_fault flush_one(struct slab_cache *cache, void *object, struct slab **into)
{
    struct slab *slab = descriptor_of_slice(slice_of(object));
    uintptr_t offset = (uintptr_t)object - (uintptr_t)slab_start(slab);
    uint32_t index = slab_index(cache, offset);
    *into = slab;
    if (unlikely((uintptr_t)index * cache->size != offset))
        return SLAB_INTERIOR;
    uint64_t *word = &slab->bits[index / 64];
    uint64_t bit = 1ull << (index % 64);
    if (unlikely(!handed_out(cache, slab, index) || (*word & bit)))
        return SLAB_DOUBLE_FREE;
    *word |= bit;
    if (!slab->returned++ || index / 64 < slab->first_word)
        slab->first_word = index / 64;
    return SLAB_OK;
}

/*
 * An empty slab is worth keeping if it is likely to be used again: if more objects are out than one slab has, or
 * in a small heap. Otherwise each class would keep a slab of up to 256 KiB after a burst of all sizes.
 */
static bool keeps_empty(const struct slab_cache *cache)
{
    uint64_t out = (uint64_t)cache->slabs * cache->objects - cache->free;
    return out >= cache->objects || read_once(region_stats.slab_slices) < SMALL_HEAP;
}

struct slab *slab_settle(struct slab_cache *cache, struct slab *slab)
{
    if (unlikely(slab->busy))
        return NULL;
    list_update(cache, slab);
    if (slab_free_objects(cache, slab) != cache->objects)
        return NULL;
    cache->remove_partial++;
    if (cache->empty < EMPTY_KEPT && keeps_empty(cache)) {
        cache->empty++;
        return NULL;
    }
    list_remove(cache, slab);
    cache->slabs--;
    cache->free_slab++;
    cache->free -= cache->objects;
    return slab;
}

/*
 * Slabs are chained through their descriptors rather than in arrays, because the stack may be a signal handler's
 * of a few KiB. What calls it, and what it calls: docs/cold-path.md, "The call tree of free".
 */
bool slab_put(struct slab_cache *cache, void *const *objects, unsigned n, struct slab_report *report)
{
    uint32_t touched = 0;
    struct slab *empty = NULL;
    report->fault = SLAB_OK;
    if (!lock_acquire(cache->lock))
        return false;
    unsigned i;
    for (i = 0; i < n; i++) {
        struct slab *slab;
        enum slab_fault fault = flush_one(cache, objects[i], &slab);
        if (unlikely(fault)) {
            *report = (struct slab_report){fault, objects[i]};
            break;
        }
        if (!slab->touched) {
            slab->touched = 1;
            slab->chain = touched;
            touched = slab->reference;
        }
    }
    cache->free += i;
    while (touched) {
        struct slab *slab = descriptor_of(touched);
        touched = slab->chain;
        slab->touched = 0;
        if (slab_settle(cache, slab)) {
            slab->chain = empty ? empty->reference : 0;
            empty = slab;
        }
    }
    lock_release(cache->lock);
    while (empty) {
        struct slab *next = empty->chain ? descriptor_of(empty->chain) : NULL;
        slab_release(cache, empty);
        empty = next;
    }
    return true;
}

void slab_shrink(struct slab_cache *cache)
{
    for (;;) {
        struct slab *empty = NULL;
        if (!cache->size || !lock_acquire(cache->lock))
            return;
        if (cache->empty)
            for (uint32_t at = cache->lists[SLAB_EMPTIEST]; at && !empty; at = descriptor_of(at)->next)
                if (slab_free_objects(cache, descriptor_of(at)) == cache->objects)
                    empty = descriptor_of(at);
        if (empty) {
            list_remove(cache, empty);
            cache->empty--;
            cache->slabs--;
            cache->free_slab++;
            cache->free -= cache->objects;
        }
        lock_release(cache->lock);
        if (!empty)
            return;
        slab_release(cache, empty);
    }
}

bool slab_locate(const struct slab_cache *cache, const void *p, uint32_t *slice, uint32_t *index)
{
    const struct slab *slab = descriptor_of_slice(slice_of(p));
    *slice = slab->slice;
    *index = slab_index(cache, (uintptr_t)p - (uintptr_t)slab_start(slab));
    return *index < cache->objects;
}

void *slab_object(const struct slab_cache *cache, const void *p)
{
    char *start = slab_start(descriptor_of_slice(slice_of(p)));
    return start + (size_t)slab_index(cache, (uintptr_t)p - (uintptr_t)start) * cache->size;
}

size_t slab_room(const struct slab_cache *cache, const void *p)
{
    return cache->size - ((uintptr_t)p - (uintptr_t)slab_object(cache, p));
}

bool slab_is_free(const struct slab_cache *cache, const void *p)
{
    struct slab *slab = descriptor_of_slice(slice_of(p));
    uint32_t index = slab_index(cache, (uintptr_t)p - (uintptr_t)slab_start(slab));
    return !handed_out(cache, slab, index) || (read_once(slab->bits[index / 64]) >> (index % 64) & 1);
}

uint64_t slab_out(const struct slab_cache *cache)
{
    return (uint64_t)read_once(cache->slabs) * cache->objects - read_once(cache->free);
}

void slab_check(struct slab_cache *cache)
{
    if (!lock_acquire(cache->lock))
        return;
    uint64_t free = 0;
    uint32_t empty = 0;
    for (int i = 0; i < SLAB_LISTS; i++) {
        uint32_t prev = 0;
        for (uint32_t at = cache->lists[i]; at; prev = at, at = descriptor_of(at)->next) {
            struct slab *slab = descriptor_of(at);
            uint32_t set = 0;
            for (uint32_t w = 0; w < slab->words; w++)
                set += (uint32_t)__builtin_popcountll(slab->bits[w]);
            if (slab->list != i || slab->prev != prev || slab->returned != set || slab->mark > cache->objects ||
                slab->cache != cache->number)
                sheaf_assert_failed("slab agrees with its list and bits", __FILE__, __LINE__);
            free += slab_free_objects(cache, slab);
            empty += slab_free_objects(cache, slab) == cache->objects;
        }
    }
    if (free != cache->free || empty != cache->empty)
        sheaf_assert_failed("counts of the cache agree with its slabs", __FILE__, __LINE__);
    lock_release(cache->lock);
}
