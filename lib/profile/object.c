#include "profile/object.h"
#include "cache/alloc.h"
#include "cache/stops.h"
#include "feature/harden.h"
#include "profile/area.h"
#include "profile/chance.h"
#include "profile/profile.h"
#include "profile/take.h"

#include <string.h>

/* ---- twins ---- */

static void name_twin(char *name, uint32_t size)
{
    char digits[12], *at = digits + sizeof(digits) - 1;
    for (*at = 0; size; size /= 10)
        *--at = (char)('0' + size % 10);
    strcpy(name, "sampled-");
    strcat(name, at);
}

/* The size of the larger class of a pair. Up to 128 bytes classes have twins of their own. */
static uint32_t twin_size(const struct kmem_cache *cache)
{
    if (cache->home < TWIN_PAIRS || (cache->home - TWIN_PAIRS) % 2)
        return cache->object_size;
    uint32_t step = 16u << (31 - __builtin_clz(cache->object_size - 1) - 7); /* eight classes for each doubling */
    return cache->object_size + step;
}

/* Two threads may set up the same twin at once: both write the same values, and the size last. */
static struct kmem_cache *twin_of(const struct kmem_cache *cache)
{
    unsigned number = twin_number(cache->home);
    if (unlikely(!cache_in_use(cache_at(number)))) {
        char name[32];
        uint32_t size = twin_size(cache);
        name_twin(name, size);
        cache_setup(number,
                    (struct cache_shape){.name = name, .object_size = size, .size = size, .align = cache->align});
    }
    return cache_at(number);
}

static void *twin_free(struct kmem_cache *cache, void *object)
{
    (void)cache;
    area_remove(object);
    return object;
}

static const struct cache_ops twin_ops = {.free = twin_free};

/* ---- allocation ---- */

static void *sampled_object(struct kmem_cache *cache, size_t n, unsigned mean)
{
    struct kmem_cache *twin = twin_of(cache);
    void *object = cache_alloc_raw(twin);
    if (object)
        take_sample(object, n, cache->slab.size, chance_of(cache->slab.size, mean), mean);
    return object;
}

/* The pop that was to be sampled. Returns false, with nothing changed, if the slot's word has moved on. */
static bool take_stop(struct kmem_cache *cache, unsigned slot, uint64_t top, unsigned *mean)
{
    struct ends ends;
    if (!ends_detach(cache, slot, top, &ends))
        return false;
    *mean = ends.due.mean;
    bool due = ends.due.known && ends.due.span == 1 && !ends.due.least;
    if (due)
        ends.due.known = false;
    ends_attach(cache, slot, ends);
    return due;
}

/*
 * Fast pops are sampled where a stop was placed. Every other request that comes here is served by the slow path,
 * which no stop covers; chance_hit() counts its bytes.
 */
static void *sample_request(struct kmem_cache *cache, size_t n, size_t align)
{
    (void)align; /* objects of the twin are aligned like those of the class */
    unsigned slot = slot_current();
    if (!read_once(profile_on) || !slot_writable(slot) || !cache_enter(&cache, slot))
        return NULL;
    uint64_t top = read_once(slot_words(slot, SLOT_ID(cache->number))->top);
    unsigned mean;
    if (!top_held(top) && stops_here(cache, top))
        return take_stop(cache, slot, top, &mean) ? sampled_object(cache, n, mean) : NULL;
    mean = chance_mean(slot);
    return chance_hit(slot, cache->slab.size, mean) ? sampled_object(cache, n, mean) : NULL;
}

static uint32_t draw(const struct kmem_cache *cache, struct pops_due *due, uint32_t far)
{
    if (!read_once(profile_on))
        return UINT32_MAX;
    unsigned slot = slot_current();
    size_t size = cache->slab.size;
    if (!due->known)
        *due = (struct pops_due){.mean = (uint8_t)chance_mean(slot)};
    else if (!due->span) /* nothing but a lower bound was drawn, so the mean may change behind it */
        due->mean = (uint8_t)chance_mean(slot);
    far = far > due->least ? far - due->least : 0;
    uint32_t more = due->span == 1 ? 0
                    : due->span    ? chance_distance_below(slot, size, due->mean, due->span)
                                   : chance_distance(slot, size, due->mean, far);
    return more < UINT32_MAX - 1 - due->least ? due->least + more : UINT32_MAX - 1;
}

static const struct cache_ops class_ops = {.sample = sample_request, .draw = draw};

void profile_attach_objects(struct kmem_cache *cache)
{
    if (!cache->detour)
        cache_attach(cache, &class_ops);
}

void profile_attach_slow(struct kmem_cache *cache, struct cache_shape *shape)
{
    if (cache_gap(cache->number)) {
        shape->capacity_most = 0;
        cache_attach(cache, &twin_ops);
    } else if (cache_is_class(cache)) {
        profile_attach_objects(cache);
    }
}
