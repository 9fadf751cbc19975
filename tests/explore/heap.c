#include "heap.h"
#include "cache/ends.h"
#include "cache/deferred/rcu.h"
#include "memory/space/locks.h"
#include "process/census.h"

#include <string.h>

/* ---- the shadow heap ---- */

struct kmem_cache *cache;

#define HELD_MOST 64
static struct held {
    void *object;
    size_t size;
    uint64_t mark;
} held[HELD_MOST];
static uint64_t serial;

static struct held *held_at(const void *object)
{
    for (unsigned i = 0; i < HELD_MOST; i++)
        if (held[i].object == object)
            return &held[i];
    return NULL;
}

void hold(void *object, size_t size)
{
    if (held_at(object))
        explore_fail("%p was handed out twice", object);
    struct held *slot = held_at(NULL);
    if (!slot)
        explore_fail("explorer: too many objects are in use");
    *slot = (struct held){.object = object, .size = size, .mark = ++serial};
    for (size_t i = 0; i < size / 8; i++)
        ((uint64_t *)object)[i] = slot->mark;
}

void let_go(void *object)
{
    struct held *slot = held_at(object);
    if (!slot)
        explore_fail("explorer: %p is given back by who does not hold it", object);
    for (size_t i = 0; i < slot->size / 8; i++)
        if (((uint64_t *)object)[i] != slot->mark)
            explore_fail("%p was written to while it was in use", object);
    slot->object = NULL;
}

bool is_held(const void *object)
{
    return held_at(object);
}

void *try_take(void)
{
    void *object = kmem_cache_alloc(cache, 0);
    if (object)
        hold(object, kmem_cache_size(cache));
    return object;
}

void *take(void)
{
    void *object = try_take();
    if (!object)
        explore_fail("an allocation failed");
    return object;
}

void give(void *object)
{
    let_go(object);
    kmem_cache_free(cache, object);
}

unsigned held_count(void)
{
    unsigned n = 0;
    for (unsigned i = 0; i < HELD_MOST; i++)
        n += held[i].object != NULL;
    return n;
}

/* ---- what must hold at the end ---- */

static void *seen[1 << 10];
static unsigned seen_count;

static void see(void *object, const char *where)
{
    uintptr_t slice = slice_of(object);
    if (slice >= space.slice_count || slice_push_id(slice).at != cache_push_id(cache).at)
        explore_fail("%s holds %p, which is no object of the cache", where, object);
    for (unsigned i = 0; i < seen_count; i++)
        if (seen[i] == object)
            explore_fail("%p is in two places, one of them is %s", object, where);
    if (seen_count < sizeof(seen) / sizeof(seen[0]))
        seen[seen_count++] = object;
    if (held_at(object))
        explore_fail("%p is in use and in %s", object, where);
    if (slab_is_free(&cache->slab, object))
        explore_fail("%p is free in its slab and in %s", object, where);
}

static unsigned in_sheaves;
static void see_objects(void *const *objects, unsigned n, const char *where)
{
    for (unsigned i = 0; i < n; i++)
        see(objects[i], where);
    in_sheaves += n;
}

static void see_sheaf(struct sheaf *sheaf, void *where)
{
    see_objects(sheaf->objects, sheaf->count, where);
}

static void see_end(struct end end, const char *where)
{
    if (end.at == END_CLAIMED)
        explore_fail("%s stays claimed", where);
    if (end.at)
        see_objects(sheaf_containing(end)->objects, end_depth(end), where);
}

void check_cache(void)
{
    in_sheaves = 0;
    seen_count = 0;
    for (unsigned slot = 0; slot < CPUS; slot++) {
        if (!slot_writable(slot))
            continue;
        struct slot_words *words = slot_words(slot, word_id(cache->number));
        see_end(top_pop_end(words->top), "a pop end");
        if (!cache->lifo)
            see_end(top_push_end(words->top), "a push end");
        if ((uint32_t)words->spare)
            see_sheaf(sheaf_at((uint32_t)words->spare), "a spare");
    }
    struct barn *barn = cache_barn(cache, 0);
    unsigned before = in_sheaves;
    sheaf_stack_each(&barn->full, see_sheaf, "a barn");
    if (barn_objects(barn) != in_sheaves - before)
        explore_fail("a barn counts %u objects and has %u", (unsigned)barn_objects(barn), in_sheaves - before);
    unsigned reserved = (unsigned)atomic_load(&cache->reserved);
    unsigned waiting = (unsigned)rcu_objects(cache);
    if (slab_out(&cache->slab) != in_sheaves + held_count() + reserved + waiting)
        explore_fail("%u objects are out of the slabs, but %u in sheaves, %u in the reserve and %u in use",
                     (unsigned)slab_out(&cache->slab), in_sheaves, reserved, held_count());
    struct cache_census census;
    cache_census(cache, &census);
    if (census.in_use != held_count() + census.in_rcu || census.out != census.in_use + census_kept(&census))
        explore_fail("%u objects are in use, but the counters say %d, of which %d wait", held_count(),
                     (int)census.in_use, (int)census.in_rcu);
}

void check_locks(void)
{
    for (unsigned i = 0; i < CACHE_MAX; i++)
        if (lock_of(i)->word)
            explore_fail("lock %u is held at the end", i);
}

void check_all(void)
{
    check_locks();
    check_cache();
    for (unsigned i = 0; i < HELD_MOST; i++)
        if (held[i].object)
            give(held[i].object);
    kmem_cache_shrink(cache);
    check_cache();
    if (slab_out(&cache->slab))
        explore_fail("%u objects are lost after everything was freed", (unsigned)slab_out(&cache->slab));
}

/* ---- the start ---- */

void create(unsigned size, unsigned capacity)
{
    struct kmem_cache_args args = {.sheaf_capacity = capacity};
    cache = kmem_cache_create("explored", size, &args, 0);
    if (!cache)
        explore_fail("explorer: no cache could be created");
}

/* Leaves n objects of the slot at its ends, and n in use. */
static void *had[HELD_MOST];
void warm(unsigned cpu, unsigned n)
{
    sections_prepare_on(cpu);
    for (unsigned i = 0; i < n; i++)
        had[i] = take();
    for (unsigned i = 0; i < n; i++)
        give(had[i]);
    sections_prepare_on(0);
}
