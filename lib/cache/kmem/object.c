#include "cache/alloc.h"
#include "cache/kmem/bulk.h"
#include "cache/free.h"
#include "cache/misuse.h"
#include "diagnostics/feature/instrument.h"
#include "cache/kmem/object.h"
#include "cache/kmem/reserve.h"
#include "cache/node/node.h"

#include <errno.h>
#include <string.h>

/* Allocation and free in caches that the user created: of single objects, in bulk, and on a memory node. */

static void *alloc(struct kmem_cache *cache)
{
    void *object = unlikely(cache->nodes) ? slot_pop_local(word_id(cache->home), cache->lifo)
                                          : slot_pop(word_id(cache->number), cache->lifo);
    return likely(object != NULL) ? object : cache_alloc_slow(cache);
}

void *kmem_alloc_failed(struct kmem_cache *cache)
{
    __atomic_fetch_add(&cache->alloc_fail, 1, __ATOMIC_RELAXED);
    errno = ENOMEM;
    return NULL;
}

void *kmem_present(struct kmem_cache *cache, void *raw)
{
    __typeof__(cache->ops->present) present_raw = cache_op(cache, present);
    return unlikely(raw && present_raw) ? present_raw(cache, raw, cache->object_size, 1) : raw;
}

static noinline_cold void *alloc_reserved(struct kmem_cache *cache, gfp_t flags)
{
    void *object = flags & __GFP_MEMALLOC ? reserve_take(cache) : NULL;
    if (object) {
        count(slot_counting(), cache->number, COUNT_alloc_slowpath, 1);
        return kmem_present(cache, object);
    }
    return kmem_alloc_failed(cache);
}

sheaf_export void *kmem_cache_alloc(struct kmem_cache *cache, gfp_t flags)
{
    void *object = alloc(cache);
    if (unlikely(!object) && !(object = alloc_reserved(cache, flags)))
        return NULL;
    if (flags & __GFP_ZERO)
        memset(object, 0, cache->object_size);
    return object;
}

sheaf_export void *kmem_cache_zalloc(struct kmem_cache *cache, gfp_t flags)
{
    return kmem_cache_alloc(cache, flags | __GFP_ZERO);
}

/* The cache that the object's slice belongs to; NULL if it belongs to none. */
static struct kmem_cache *cache_of(const void *object)
{
    uintptr_t slice = slice_of(object);
    if (slice >= space.slice_count || !*slice_id(slice))
        return NULL;
    return cache_at(push_id_number(slice_push_id(slice)));
}

static void free_checked(struct kmem_cache *cache, void *object)
{
    struct kmem_cache *owner = cache_of(object);
    if (unlikely(!owner)) {
        misuse_warn("free of foreign pointer", object, cache->name);
        return;
    }
    if (unlikely(owner != cache)) {
        if (owner->home != cache->home)
            misuse_warn("free to the wrong cache of", object, owner->name);
        cache = owner;
    }
    if (unlikely(!slot_push(cache_push_id(cache), object)))
        cache_free_slow(cache, object);
}

sheaf_export void kmem_cache_free(struct kmem_cache *cache, void *object)
{
    if (object)
        free_checked(cache, object);
}

sheaf_export bool kmem_cache_alloc_bulk(struct kmem_cache *cache, gfp_t flags, size_t n, void **objects)
{
    size_t taken = bulk_take(cache, objects, n);
    if (flags & __GFP_ZERO)
        for (size_t i = 0; i < taken; i++)
            memset(objects[i], 0, cache->object_size);
    for (size_t i = taken; i < n; i++) {
        objects[i] = kmem_cache_alloc(cache, flags);
        if (likely(objects[i] != NULL))
            continue;
        while (i--) {
            free_checked(cache, objects[i]);
            objects[i] = NULL;
        }
        return false;
    }
    return true;
}

/* The number of objects, from the first on, whose slices have the same id: they belong to one cache and one
 * node. */
static size_t alike(void *const *objects, size_t n)
{
    uintptr_t slice = slice_of(objects[0]);
    uint16_t id = slice < space.slice_count ? *slice_id(slice) : 0;
    size_t i = 1;
    while (i < n && (slice = slice_of(objects[i])) < space.slice_count && *slice_id(slice) == id)
        i++;
    return i;
}

sheaf_export void kmem_cache_free_bulk(struct kmem_cache *cache, size_t n, void **objects)
{
    while (n) {
        struct kmem_cache *owner = cache_of(objects[0]);
        size_t run = alike(objects, n);
        size_t done = owner && (!cache || owner->home == cache->home) ? bulk_free(owner, objects, run) : 0;
        for (; done < run; done++) {
            if (unlikely(!owner && !cache))
                misuse_report("free of foreign pointer", objects[done], "bulk");
            free_checked(cache ? cache : owner, objects[done]);
        }
        objects += run;
        n -= run;
    }
}

/* ---- on a memory node ---- */

/* Bypasses the sheaves, which belong to slots of the sibling's node. */
static void *alloc_on(struct kmem_cache *cache)
{
    void *raw = cache_alloc_raw(cache);
    if (raw)
        count(slot_counting(), cache->number, COUNT_alloc_node, 1);
    return kmem_present(cache, raw);
}

sheaf_export apart void *kmem_cache_alloc_node(struct kmem_cache *cache, gfp_t flags, int node)
{
    int index = cache->nodes ? numa_index_of(node) : -1;
    bool fails = unlikely(cache->instruments & INSTRUMENT_FAIL);
    if (likely(index < 0 || fails || (!numa.strict && node_of_slot(slot_counting()) == index)))
        return kmem_cache_alloc(cache, flags);
    struct kmem_cache *there = node_sibling(cache, (unsigned)index);
    void *object = alloc_on(there);
    if (unlikely(!object))
        return flags & __GFP_THISNODE ? kmem_alloc_failed(there) : kmem_cache_alloc(cache, flags);
    if (flags & __GFP_ZERO)
        memset(object, 0, cache->object_size);
    return object;
}
