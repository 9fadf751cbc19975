#include "cache/kmem_cache.h"
#include "cache/misuse.h"

#include <errno.h>
#include <sched.h>

/*
 * No lock of the reserve's own: carriers move between two lock-free stacks, so everything here but the change of its
 * size works in a signal handler at any point. The slabs' lock may be refused there; then an object is not fetched or
 * checked, but never lost. Fork: each stack is one word; a carrier that another thread had in hand is lost to the
 * child with its object, and the child's reserve is smaller by it.
 */

#define SHRINK_TRIES 1000 /* yields while carriers are in other hands */

static void *carry_out(struct reserve *reserve)
{
    struct sheaf *carrier = sheaf_stack_pop(&reserve->filled);
    if (!carrier)
        return NULL;
    void *object = carrier->objects[0];
    carrier->count = 0;
    atomic_fetch_sub_explicit(&reserve->objects, 1, memory_order_relaxed);
    sheaf_stack_push(&reserve->empty, carrier);
    return object;
}

static void carry_in(struct reserve *reserve, struct sheaf *carrier, void *object)
{
    carrier->objects[0] = object;
    carrier->count = 1;
    atomic_fetch_add_explicit(&reserve->objects, 1, memory_order_relaxed);
    sheaf_stack_push(&reserve->filled, carrier);
}

static void *from_slabs(struct kmem_cache *cache)
{
    void *object = NULL;
    slab_take(&cache->slab, &object, 1);
    return object;
}

bool reserve_top_up(struct kmem_cache *cache)
{
    struct sheaf *carrier = sheaf_stack_pop(&cache->reserve.empty);
    if (!carrier)
        return false;
    void *object = from_slabs(cache);
    if (!object) {
        sheaf_stack_push(&cache->reserve.empty, carrier);
        return false;
    }
    carry_in(&cache->reserve, carrier, object);
    count(slot_counting(), cache->number, COUNT_reserve_refill, 1);
    return true;
}

/*
 * The first object that is taken makes the reserve short. From then on no sheaf is installed; those that are come
 * back now, so that the fast paths find none and each free reaches the reserve. (A thread that is installing one at
 * this moment keeps it for once; what it holds is found when the reserve is empty.)
 */
void *reserve_take(struct kmem_cache *cache)
{
    struct reserve *reserve = &cache->reserve;
    if (!atomic_load_explicit(&reserve->size, memory_order_relaxed))
        return NULL;
    bool was_full = !reserve_short(reserve);
    void *object = carry_out(reserve);
    if (object)
        count(slot_counting(), cache->number, COUNT_reserve_take, 1);
    if (object && !was_full)
        return object;
    cache_drain(cache);
    if (!object)
        object = from_slabs(cache);
    while (reserve_top_up(cache)) {
    }
    return object;
}

bool reserve_put(struct kmem_cache *cache, void *object)
{
    struct sheaf *carrier = sheaf_stack_pop(&cache->reserve.empty);
    if (!carrier)
        return false;
    /* what slab_give() would see */
    bool inside = slab_object(&cache->slab, object) != object;
    if (unlikely(inside || slab_is_free(&cache->slab, object))) {
        struct slab_report report = {inside ? SLAB_INTERIOR : SLAB_DOUBLE_FREE, object};
        misuse_slab(cache, &report);
    }
    carry_in(&cache->reserve, carrier, object);
    count(slot_counting(), cache->number, COUNT_reserve_refill, 1);
    return true;
}

/* ---- its size ---- */

/* `n` carriers fewer, those without an object first. Fewer than that when some stay in other hands. */
static void shrink(struct kmem_cache *cache, uint32_t n)
{
    struct reserve *reserve = &cache->reserve;
    for (int tries = 0; n && tries < SHRINK_TRIES;) {
        struct sheaf *carrier = sheaf_stack_pop(&reserve->empty);
        if (!carrier) {
            carrier = sheaf_stack_pop(&reserve->filled);
            if (carrier)
                atomic_fetch_sub_explicit(&reserve->objects, 1, memory_order_relaxed);
        }
        if (!carrier) {
            tries++;
            sched_yield();
            continue;
        }
        atomic_fetch_sub_explicit(&reserve->size, 1, memory_order_relaxed);
        n--;
        cache_discard_sheaf(cache, slot_counting(), carrier);
    }
}

static bool grow(struct kmem_cache *cache)
{
    void *object = from_slabs(cache);
    if (!object) {
        cache_drain(cache);
        object = from_slabs(cache);
    }
    if (!object)
        return false;
    struct sheaf *carrier = empty_sheaf_alloc(sheaf_capacity_of(SHEAF_ORDER_MIN));
    struct slab_report report;
    if (!carrier) {
        slab_give(&cache->slab, &object, 1, &report);
        return false;
    }
    atomic_fetch_add_explicit(&cache->reserve.size, 1, memory_order_relaxed);
    carry_in(&cache->reserve, carrier, object);
    return true;
}

sheaf_export int kmem_cache_reserve(struct kmem_cache *cache, unsigned size)
{
    uint32_t had = atomic_load_explicit(&cache->reserve.size, memory_order_relaxed);
    if (size < had)
        shrink(cache, had - size);
    for (uint32_t now = had; now < size; now++)
        if (!grow(cache)) {
            shrink(cache, now - had);
            return -ENOMEM;
        }
    return 0;
}
