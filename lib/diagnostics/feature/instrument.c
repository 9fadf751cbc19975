#include "diagnostics/feature/instrument.h"
#include "cache/alloc.h"
#include "diagnostics/feature/debug.h"
#include "diagnostics/feature/debug_spec.h"
#include "diagnostics/feature/fail.h"
#include "diagnostics/feature/harden.h"
#include "diagnostics/feature/quarantine.h"

uint16_t instruments_for(const char *name, slab_flags_t flags)
{
    unsigned instruments = 0;
    if (unlikely(flags & DEBUG_CHECKS) && debug_start())
        instruments |= INSTRUMENT_DEBUG;
    if (unlikely(fail_concerns(name, flags & SLAB_FAILSLAB)))
        instruments |= INSTRUMENT_FAIL;
    /* a debugged cache checks its objects itself, but a quarantine delays their reuse, so later writes are
     * found */
    if (unlikely(harden_objects()) && (!(instruments & INSTRUMENT_DEBUG) || sheaf_config.harden.quarantine))
        instruments |= INSTRUMENT_HARDEN;
    return (uint16_t)instruments;
}

static void *instrumented_present(struct kmem_cache *cache, void *raw, size_t size, size_t align)
{
    if (cache->instruments & INSTRUMENT_HARDEN)
        harden_alloc(cache, raw);
    return cache->instruments & INSTRUMENT_DEBUG ? debug_present(cache, raw, size, align) : raw;
}

/* Caches of malloc fail in serve_failing() (diagnostics/feature/attach.c) instead, so that all attempts for a request
 * count once. */
static bool fails(const struct kmem_cache *cache, size_t size)
{
    return unlikely(cache->instruments & INSTRUMENT_FAIL) && !cache_is_class(cache) && fail_now(cache->name, size);
}

static void *instrumented_alloc(struct kmem_cache *cache, size_t size, size_t align)
{
    if (fails(cache, size))
        return NULL;
    cache_enter(&cache, slot_counting()); /* if the node is not known now, any sibling will do */
    void *raw = cache_alloc_raw(cache);
    if (unlikely(!raw) && quarantine_waits()) { /* objects in quarantine can be reused */
        quarantine_drain(NULL);
        raw = cache_alloc_raw(cache);
    }
    return likely(raw != NULL) ? instrumented_present(cache, raw, size, align) : NULL;
}

static void *instrumented_free(struct kmem_cache *cache, void *object)
{
    if (cache->instruments & INSTRUMENT_DEBUG)
        object = debug_free(cache, object);
    return object && cache->instruments & INSTRUMENT_HARDEN ? harden_free(cache, object) : object;
}

static size_t instrumented_usable(const struct kmem_cache *cache, const void *p)
{
    return cache->instruments & INSTRUMENT_DEBUG ? debug_size(cache, p) : slab_room(&cache->slab, p);
}

const struct cache_ops instrumented_ops = {
    .alloc = instrumented_alloc,
    .present = instrumented_present,
    .free = instrumented_free,
    .usable = instrumented_usable,
    .release_kept = quarantine_drain,
};
