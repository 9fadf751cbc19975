#include "cache/kmem/reserve.h"
#include "cache/decay.h"
#include "cache/misuse.h"
#include "cache/sheaves.h"

#include <errno.h>
#include <sched.h>

/*
 * The reserve has no lock. Carriers move between two lock-free stacks, so everything but a change of the size
 * works in signal handlers at any point. A handler may be unable to get the slabs' lock; an object is then not
 * fetched, but never lost. Fork: each stack is one word. A carrier that another thread had detached is lost to the
 * child with its object, and the child's reserve is smaller by it.
 */

#define SHRINK_TRIES 1000 /* yields while other threads have carriers detached */

static struct reserve *reserve_of(const struct kmem_cache *cache)
{
    return &cache_tables_of(cache->number)->reserve;
}

uint32_t reserve_size(const struct kmem_cache *cache)
{
    return atomic_load_explicit(&reserve_of(cache)->size, memory_order_relaxed);
}

static bool is_short(const struct kmem_cache *cache)
{
    return sheaf_stack_holds(&reserve_of(cache)->empty);
}

static void *carry_out(struct kmem_cache *cache)
{
    struct reserve *reserve = reserve_of(cache);
    struct sheaf *carrier = sheaf_stack_pop(&reserve->filled);
    if (!carrier)
        return NULL;
    void *object = carrier->objects[0];
    carrier->count = 0;
    atomic_fetch_sub_explicit(&cache->reserved, 1, memory_order_relaxed);
    sheaf_stack_push(&reserve->empty, carrier);
    return object;
}

static void carry_in(struct kmem_cache *cache, struct sheaf *carrier, void *object)
{
    carrier->objects[0] = object;
    carrier->count = 1;
    atomic_fetch_add_explicit(&cache->reserved, 1, memory_order_relaxed);
    sheaf_stack_push(&reserve_of(cache)->filled, carrier);
}

static void *from_slabs(struct kmem_cache *cache)
{
    void *object = NULL;
    slab_take(&cache->slab, &object, 1);
    return object;
}

static bool top_up(struct kmem_cache *cache)
{
    struct sheaf *carrier = sheaf_stack_pop(&reserve_of(cache)->empty);
    if (!carrier)
        return false;
    void *object = from_slabs(cache);
    if (!object) {
        sheaf_stack_push(&reserve_of(cache)->empty, carrier);
        return false;
    }
    carry_in(cache, carrier, object);
    count(slot_counting(), cache->number, COUNT_reserve_refill, 1);
    return true;
}

/*
 * The first object taken makes the reserve short. From then on no sheaf is installed. The installed ones are
 * drained now, so that the fast paths find none and each free reaches the reserve. (A thread that is just
 * installing a sheaf still does so. Its objects are drained when the reserve is empty.)
 */
void *reserve_take(struct kmem_cache *cache)
{
    if (!reserve_size(cache))
        return NULL;
    bool was_full = !is_short(cache);
    void *object = carry_out(cache);
    if (object)
        count(slot_counting(), cache->number, COUNT_reserve_take, 1);
    if (object && !was_full)
        return object;
    cache_drain(cache);
    if (!object)
        object = from_slabs(cache);
    while (top_up(cache)) {
    }
    return object;
}

static bool absorb(struct kmem_cache *cache, void *object)
{
    struct sheaf *carrier = sheaf_stack_pop(&reserve_of(cache)->empty);
    if (!carrier)
        return false;
    /* the checks of slab_put(), which this object does not pass through */
    bool inside = slab_object(&cache->slab, object) != object;
    if (unlikely(inside || slab_is_free(&cache->slab, object))) {
        struct slab_report report = {inside ? SLAB_INTERIOR : SLAB_DOUBLE_FREE, object};
        misuse_slab(cache, &report);
    }
    carry_in(cache, carrier, object);
    count(slot_counting(), cache->number, COUNT_reserve_refill, 1);
    return true;
}

/* ---- its size ---- */

/* Remove n carriers, those without an object first; fewer if other threads keep some detached. */
static void shrink(struct kmem_cache *cache, uint32_t n)
{
    struct reserve *reserve = reserve_of(cache);
    for (int tries = 0; n && tries < SHRINK_TRIES;) {
        struct sheaf *carrier = sheaf_stack_pop(&reserve->empty);
        if (!carrier) {
            carrier = sheaf_stack_pop(&reserve->filled);
            if (carrier)
                atomic_fetch_sub_explicit(&cache->reserved, 1, memory_order_relaxed);
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
        slab_put(&cache->slab, &object, 1, &report);
        return false;
    }
    atomic_fetch_add_explicit(&reserve_of(cache)->size, 1, memory_order_relaxed);
    carry_in(cache, carrier, object);
    return true;
}

/* In a child of fork `size` may count a carrier that another thread had detached. */
void reserve_forget(const struct kmem_cache *cache)
{
    struct reserve *reserve = reserve_of(cache);
    struct sheaf *carrier;
    if (likely(!reserve_size(cache)))
        return;
    while ((carrier = sheaf_stack_pop(&reserve->empty)) != NULL)
        empty_sheaf_free(carrier);
    atomic_store_explicit(&reserve->size, 0, memory_order_relaxed);
}

void reserve_each(sheaf_visitor *visit, void *with)
{
    for (unsigned i = CACHE_USERS; i < read_once(cache_top); i++) {
        sheaf_stack_each(&cache_tables_of(i)->reserve.filled, visit, with);
        sheaf_stack_each(&cache_tables_of(i)->reserve.empty, visit, with);
    }
}

static const struct cache_ops reserve_ops = {.is_short = is_short, .absorb = absorb, .top_up = top_up};

sheaf_export int kmem_cache_reserve(struct kmem_cache *cache, unsigned size)
{
    uint32_t had = reserve_size(cache);
    if (size)
        cache_attach(cache, &reserve_ops);
    if (size < had)
        shrink(cache, had - size);
    for (uint32_t now = had; now < size; now++)
        if (!grow(cache)) {
            shrink(cache, now - had);
            return -ENOMEM;
        }
    return 0;
}
