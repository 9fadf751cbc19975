#include "cache/detour.h"
#include "cache/fail.h"
#include "cache/harden.h"

uint16_t detour_for(const struct kmem_cache *cache, slab_flags_t flags)
{
    (void)flags;
    uint16_t detour = fail_concerns(cache->name, false) ? DETOUR_FAIL : 0;
    if (harden_objects())
        detour |= DETOUR_HARDEN;
    return detour;
}

void *detour_alloc(struct kmem_cache *cache, size_t size, size_t align)
{
    /* malloc asks before it tries anything, so that what it tries instead is no second call */
    if (unlikely(cache->detour & DETOUR_FAIL) && !cache->is_malloc && fail_now(cache->name, size))
        return NULL;
    void *raw = cache_alloc_raw(cache);
    return likely(raw != NULL) ? detour_present(cache, raw, size, align) : NULL;
}

void *detour_present(struct kmem_cache *cache, void *raw, size_t size, size_t align)
{
    (void)size, (void)align;
    if (cache->detour & DETOUR_HARDEN)
        harden_alloc(cache, raw);
    return raw;
}

void *detour_free(struct kmem_cache *cache, void *object)
{
    return cache->detour & DETOUR_HARDEN ? harden_free(cache, object) : object;
}

size_t detour_size(const struct kmem_cache *cache, const void *p)
{
    return cache->slab.size - ((uintptr_t)p - (uintptr_t)slab_object(&cache->slab, p));
}
