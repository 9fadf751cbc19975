#include "memory/slab/holes.h"
#include "memory/slab/list.h"
#include "platform/os/vm.h"
#include "memory/region/huge.h"

#define BATCH     16  /* slabs that are off the lists at a time */
#define WALK      256 /* slabs that are examined at a time under the lock */
#define BATCHES   64  /* in one call */
#define PAGES     64u /* the most pages in a slab: the bits of a mask */
#define WAIT_MOST 64u /* steps */

static _Atomic uint64_t all_bytes;

uint64_t slab_hole_bytes(void)
{
    return atomic_load_explicit(&all_bytes, memory_order_relaxed);
}

static unsigned pages_of(const struct slab_cache *cache)
{
    return (unsigned)((size_t)cache->slices * SLICE_SIZE / space.page_size);
}

/* Whether the objects that are out leave a third of the pages free, on average over their possible positions. */
static bool worth_it(const struct slab_cache *cache, const struct slab *slab, unsigned pages)
{
    uint64_t out = cache->objects - slab_free_objects(cache, slab);
    return 3 * out * (space.page_size + cache->size) <= 2 * (uint64_t)pages * space.page_size;
}

/* A mask of the pages that hold objects that are out. The caller holds the lock. */
static uint64_t pages_out(const struct slab_cache *cache, const struct slab *slab)
{
    uint64_t used = 0;
    for (uint32_t i = 0; i < cache->objects; i++) {
        if (slab->bits[i / 64] >> (i % 64) & 1 || !handed_out(cache, slab, i))
            continue;
        size_t first = (size_t)i * cache->size / space.page_size;
        size_t last = ((size_t)(i + 1) * cache->size - 1) / space.page_size;
        used |= (~0ull >> (63 - last)) & (~0ull << first);
    }
    return used;
}

struct hole {
    struct slab *slab;
    uint64_t used;
};

/* Takes up to BATCH slabs that are worth it off a list. The caller holds the lock. */
static unsigned choose(struct slab_cache *cache, unsigned list, unsigned pages, struct hole *into)
{
    unsigned n = 0;
    uint32_t at = cache->lists[list];
    for (unsigned i = 0; at && i < WALK && n < BATCH; i++) {
        struct slab *slab = descriptor_of(at);
        at = slab->next;
        if (slab_free_objects(cache, slab) == cache->objects || !worth_it(cache, slab, pages))
            continue;
        list_remove(cache, slab);
        slab->busy = 1;
        into[n++] = (struct hole){slab, pages_out(cache, slab)};
    }
    return n;
}

/*
 * Returns free pages to the system, and the number of bytes. The pages stay free meanwhile, because nothing is
 * allocated from a slab that is on no list.
 */
static size_t discard(const struct slab_cache *cache, struct hole hole, unsigned pages)
{
    size_t bytes = 0;
    huge_discarding(hole.slab->slice, cache->slices);
    for (unsigned from = 0, to; from < pages; from = to) {
        bool used = hole.used >> from & 1;
        for (to = from + 1; to < pages && (hole.used >> to & 1) == used; to++) {
        }
        size_t size = (to - from) * space.page_size;
        if (!used && vm_discard(slab_start(hole.slab) + from * space.page_size, size))
            bytes += size;
    }
    return bytes;
}

/*
 * Puts the slabs back on the lists, and frees those that became empty meanwhile. choose() got the lock, so the
 * lock is available again: code that this thread interrupted did not hold it then and has not run since.
 */
static bool file(struct slab_cache *cache, const struct hole *holes, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        struct slab *slab = holes[i].slab;
        if (!lock_acquire(cache->lock))
            return false;
        slab->busy = 0;
        uint32_t out = cache->objects - slab_free_objects(cache, slab);
        slab->holes = (uint8_t)(out < UINT8_MAX ? out : UINT8_MAX);
        bool empty = slab_settle(cache, slab);
        lock_release(cache->lock);
        if (empty)
            slab_release(cache, slab);
    }
    return true;
}

/*
 * Whether to skip the cache this time: most of the slabs that got holes were used again before the next call. The
 * pause grows each time. The caller holds the lock.
 */
static bool left_alone(struct slab_cache *cache)
{
    if (cache->waited < cache->wait) {
        cache->waited++;
        return true;
    }
    bool missed = cache->holes && 2 * cache->missed >= cache->holes;
    if (missed)
        cache->wait = cache->wait < WAIT_MOST / 2 ? 2 * cache->wait + 1 : WAIT_MOST;
    else if (cache->holes)
        cache->wait /= 2;
    cache->missed = cache->holes = 0;
    cache->waited = 0;
    return missed;
}

size_t slab_holes(struct slab_cache *cache)
{
    struct hole holes[BATCH];
    unsigned pages = pages_of(cache);
    size_t bytes = 0;
    if (pages < 2 || pages > PAGES)
        return 0;
    bool alone = false;
    unsigned list = SLAB_EMPTIEST;
    for (unsigned i = 0; i < BATCHES; i++) {
        if (!lock_acquire(cache->lock))
            break;
        alone = !i && left_alone(cache);
        unsigned n = alone ? 0 : choose(cache, list, pages, holes);
        cache->holes += n;
        lock_release(cache->lock);
        for (unsigned k = 0; k < n; k++)
            bytes += discard(cache, holes[k], pages);
        if (alone || !file(cache, holes, n))
            break;
        if (n < BATCH && list-- == SLAB_EMPTIEST - 1)
            break;
    }
    atomic_fetch_add_explicit(&all_bytes, bytes, memory_order_relaxed);
    return bytes;
}
