#include "cache/detour.h"
#include "cache/kmem_cache.h"
#include "cache/misuse.h"

#include <errno.h>
#include <string.h>

/* Single objects and bulks of caches that the user made. */

static void *alloc(struct kmem_cache *cache)
{
    void *object = slot_pop(SLOT_ID(cache->number));
    return likely(object != NULL) ? object : cache_alloc_slow(cache);
}

void *cache_alloc_failed(struct kmem_cache *cache)
{
    __atomic_fetch_add(&cache->alloc_fail, 1, __ATOMIC_RELAXED);
    errno = ENOMEM;
    return NULL;
}

static noinline_cold void *alloc_reserved(struct kmem_cache *cache, gfp_t flags)
{
    void *object = flags & __GFP_MEMALLOC ? reserve_take(cache) : NULL;
    if (object) {
        count(slot_counting(), cache->number, COUNT_alloc_slowpath, 1);
        return unlikely(cache->detour) ? detour_present(cache, object, cache->object_size, 1) : object;
    }
    return cache_alloc_failed(cache);
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

/* The cache that the object's unit belongs to; NULL when it is no object of ours. */
static struct kmem_cache *cache_of(const void *object)
{
    uintptr_t unit = unit_of(object);
    if (unit >= space.unit_count || !*unit_id(unit))
        return NULL;
    return &caches[*unit_id(unit) >> 4];
}

static void free_checked(struct kmem_cache *cache, void *object)
{
    struct kmem_cache *owner = cache_of(object);
    if (unlikely(!owner)) {
        misuse_tell("free of foreign pointer", object, cache->name);
        return;
    }
    if (unlikely(owner != cache)) {
        misuse_tell("free to the wrong cache of", object, owner->name);
        cache = owner;
    }
    if (unlikely(!slot_push(SLOT_ID(cache->number), object)))
        cache_free_slow(cache, object);
}

sheaf_export void kmem_cache_free(struct kmem_cache *cache, void *object)
{
    if (object)
        free_checked(cache, object);
}

sheaf_export bool kmem_cache_alloc_bulk(struct kmem_cache *cache, gfp_t flags, size_t n, void **objects)
{
    for (size_t i = 0; i < n; i++) {
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

sheaf_export void kmem_cache_free_bulk(struct kmem_cache *cache, size_t n, void **objects)
{
    for (size_t i = 0; i < n; i++) {
        struct kmem_cache *owner = cache ? cache : cache_of(objects[i]);
        if (unlikely(!owner))
            misuse_report("free of foreign pointer", objects[i], "bulk");
        free_checked(owner, objects[i]);
    }
}
