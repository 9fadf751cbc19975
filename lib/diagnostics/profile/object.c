#include "diagnostics/profile/object.h"
#include "cache/alloc.h"
#include "cache/ends.h"
#include "platform/os/clock.h"
#include "platform/os/vm.h"
#include "diagnostics/profile/area.h"
#include "diagnostics/profile/sampler.h"
#include "diagnostics/profile/pace.h"
#include "diagnostics/profile/profile.h"
#include "diagnostics/profile/take.h"

#include <string.h>

/* ---- sampled caches ---- */

static void name_sampled(char *name, uint32_t size)
{
    char digits[12], *at = digits + sizeof(digits) - 1;
    for (*at = 0; size; size /= 10)
        *--at = (char)('0' + size % 10);
    strcpy(name, "sampled-");
    strcat(name, at);
}

/* Two threads may set up the same sampled cache at once: both write the same values, and the size last. */
static struct kmem_cache *sampled_cache_of(const struct kmem_cache *cache)
{
    unsigned number = sampled_number(cache->home);
    if (unlikely(!cache_in_use(cache_at(number)))) {
        char name[32];
        uint32_t size = sampled_size(cache->home);
        name_sampled(name, size);
        cache_setup(number,
                    (struct cache_shape){.name = name, .object_size = size, .size = size, .align = cache->align});
    }
    return cache_at(number);
}

static void *sampled_free(struct kmem_cache *cache, void *object)
{
    (void)cache;
    area_remove(object);
    return object;
}

static const struct cache_ops sampled_ops = {.free = sampled_free};

/* ---- what each class has on each slot ---- */

/*
 * When the next request is to be sampled. `due` is one more than the number of allocations that come before it, 0
 * while nothing was drawn. A thread that lost its slot between its load and its store, or two siblings of a class on
 * one slot, make it come a little too early or too late; which request it then is does not depend on that.
 */
struct drawn {
    _Atomic uint32_t due;
    uint8_t slower; /* with which it was drawn */
    struct pace pace;
};
#define DRAWN_OF_SLOT (CACHE_CLASSES + 1) /* the last one is of large blocks, and has a pace alone */
static struct drawn *drawn;               /* of all slots */

static struct drawn *drawn_at(const struct kmem_cache *cache, unsigned slot)
{
    return &drawn[(size_t)slot * DRAWN_OF_SLOT + (cache->home - CACHE_FIRST)];
}

struct pace *profile_pace_of_large(unsigned slot)
{
    return &drawn[(size_t)slot * DRAWN_OF_SLOT + CACHE_CLASSES].pace;
}

bool profile_objects_start(void)
{
    return vm_map_once((void **)&drawn, (size_t)space.slots * DRAWN_OF_SLOT * sizeof(struct drawn));
}

/* A forked child would share the next samples of its parent. */
void profile_objects_forget(void)
{
    for (size_t i = 0; drawn && i < (size_t)read_once(slot_top) * DRAWN_OF_SLOT; i++)
        if (atomic_load_explicit(&drawn[i].due, memory_order_relaxed)) /* a write would copy the page */
            atomic_store_explicit(&drawn[i].due, 0, memory_order_relaxed);
}

static uint32_t draw(const struct kmem_cache *cache, unsigned slot, struct drawn *next)
{
    next->slower = (uint8_t)pace_slower(&next->pace, pace_of_slot(slot));
    uint32_t due = 1 + sampler_distance(slot, cache->slab.size, next->slower);
    atomic_store_explicit(&next->due, due, memory_order_relaxed);
    return due;
}

/* ---- allocation ---- */

static void counted(const struct kmem_cache *cache, unsigned slot, uint32_t n)
{
    struct drawn *next = drawn_at(cache, slot);
    uint32_t due = atomic_load_explicit(&next->due, memory_order_relaxed);
    if (due && n)
        atomic_store_explicit(&next->due, due > n ? due - n : 1, memory_order_relaxed);
}

static uint32_t limit(const struct kmem_cache *cache, unsigned slot)
{
    if (!read_once(profile_on))
        return UINT32_MAX;
    struct drawn *next = drawn_at(cache, slot);
    uint32_t due = atomic_load_explicit(&next->due, memory_order_relaxed);
    return (due ? due : draw(cache, slot, next)) - 1;
}

static void *sampled_object(struct kmem_cache *cache, size_t n, unsigned slot, unsigned slower)
{
    struct take take;
    double weight = 1 / sampler_probability(cache->slab.size, slower);
    if (!take_begin(&take, slot, cache->home - CACHE_FIRST, weight, slower != 0))
        return NULL;
    void *object = cache_alloc_raw(sampled_cache_of(cache));
    if (object)
        take_end(&take, object, n, cache->slab.size);
    return object;
}

/*
 * A request is due after as many allocations as were drawn. Detaching the ends counts the fast ones. Where a remote
 * drain holds the ends, which may last if its thread is preempted, all requests come here, and there are no fast
 * ones.
 */
static bool request_is_due(struct kmem_cache *cache, unsigned slot, struct drawn *next, unsigned *slower)
{
    uint64_t top = read_once(slot_words(slot, word_id(cache->number))->top);
    uint32_t due = atomic_load_explicit(&next->due, memory_order_relaxed);
    struct ends ends = {.pop = NULL};
    unsigned most = PACE_DRAWN >> pace_of_slot(slot).pressure;
    if (!due || (unlikely(next->pace.exponent) && pace_relax(&next->pace, clock_ms(), most)))
        due = draw(cache, slot, next); /* again: the distribution is memoryless */
    if (due - 1 > ends_account(cache, top).pops || (!top_claimed(top) && !ends_detach(cache, slot, top, &ends)))
        return false;
    *slower = next->slower;
    pace_note(&next->pace, clock_ms(), most);
    draw(cache, slot, next);
    if (!top_claimed(top))
        ends_attach(cache, slot, ends);
    return true;
}

static void *sample_request(struct kmem_cache *cache, size_t n, size_t align)
{
    (void)align; /* objects of the sampled cache are aligned like those of the class */
    unsigned slot = slot_current(), slower;
    if (!read_once(profile_on) || !slot_writable(slot) || !cache_enter(&cache, slot) ||
        !request_is_due(cache, slot, drawn_at(cache, slot), &slower))
        return NULL;
    return sampled_object(cache, n, slot, slower);
}

static const struct cache_ops class_ops = {.sample = sample_request, .counted = counted, .limit = limit};

/* The entries may appear in any order. Until a thread sees all of them, its samples come late. */
void profile_attach_objects(struct kmem_cache *cache)
{
    if (!cache->instruments && drawn)
        cache_attach(cache, &class_ops);
}

void profile_attach_slow(struct kmem_cache *cache, struct cache_shape *shape)
{
    if (cache_gap(cache->number)) {
        shape->capacity_most = 0;
        cache_attach(cache, &sampled_ops);
    } else if (cache_is_class(cache)) {
        profile_attach_objects(cache);
    }
}
