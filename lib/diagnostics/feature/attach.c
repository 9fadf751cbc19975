#include "diagnostics/feature/attach.h"
#include "diagnostics/feature/debug.h"
#include "diagnostics/feature/debug_spec.h"
#include "diagnostics/feature/instrument.h"
#include "diagnostics/feature/fail.h"
#include "diagnostics/feature/harden.h"
#include "diagnostics/feature/guarded_pool.h"

/* ---- requests of malloc ---- */

static bool serve_failing(struct kmem_cache *cache, size_t n, size_t align, void **p)
{
    (void)align;
    *p = NULL;
    return fail_now(cache->name, n);
}

static bool serve_from_pool(struct kmem_cache *cache, size_t n, size_t align, void **p)
{
    (void)cache;
    return (*p = pool_alloc(n, align)) != NULL;
}

static bool serve_both(struct kmem_cache *cache, size_t n, size_t align, void **p)
{
    return serve_failing(cache, n, align, p) || serve_from_pool(cache, n, align, p);
}

static const struct cache_ops failing_ops = {.serve = serve_failing};
static const struct cache_ops pool_ops = {.serve = serve_from_pool, .popped = pool_passed};
static const struct cache_ops both_ops = {.serve = serve_both, .popped = pool_passed};

static void attach_to_class(struct kmem_cache *cache, struct cache_shape *shape)
{
    bool fails = cache->instruments & INSTRUMENT_FAIL,
         sampled = sheaf_config.harden.sample && !(cache->instruments & INSTRUMENT_DEBUG);
    if (fails || sampled)
        cache_attach(cache, fails && sampled ? &both_ops : fails ? &failing_ops : &pool_ops);
    /* a sheaf holds at most N objects, so that pops are counted often enough */
    if (sampled && !cache->lifo && shape->capacity_most > sheaf_config.harden.sample)
        shape->capacity_most = sheaf_config.harden.sample;
}

/* ---- all caches ---- */

/* Without their options the features' code does not run, so its pages are never touched. */
void feature_attach(struct kmem_cache *cache, struct cache_shape *shape)
{
    if (unlikely(sheaf_config.debug != NULL))
        shape->flags |= debug_spec_flags(sheaf_config.debug, shape->name);
    cache->flags = shape->flags;
    bool instrumented = shape->flags & DEBUG_FLAGS || sheaf_config.fail || harden_objects();
    cache->instruments = unlikely(instrumented) ? instruments_for(shape->name, shape->flags) : 0;
    if (unlikely(cache->instruments))
        cache_attach(cache, &instrumented_ops);
    if (unlikely(cache->instruments & INSTRUMENT_DEBUG))
        shape->size = debug_layout(cache, shape->object_size, shape->align);
    if (unlikely((sheaf_config.harden.sample || cache->instruments) && cache_is_class(cache)))
        attach_to_class(cache, shape);
    if (unlikely(sheaf_config.harden.check))
        shape->capacity_most = 0;
    shape->shuffled = sheaf_config.harden.random;
}
