#include "diagnostics/leak/heap.h"
#include "cache/kmem_cache.h"
#include "diagnostics/feature/quarantine.h"
#include "cache/kmem/reserve.h"
#include "diagnostics/leak/memory.h"

/*
 * The objects that the allocator keeps. A sheaf is in exactly one place: at an end of a slot, where the slot's word
 * tells how many objects it has; in the pool, which has none; or anywhere else, where `count` tells. What is in none
 * of the places below belongs to a thread that was stopped in a slow path, or did when this process was forked.
 */
struct kept {
    struct heap *heap;
    uint8_t *seen; /* by the number of a sheaf */
    size_t sheaves;
    maps_visitor *stray;
    void *with;
};

static void take_out(const void *object, void *with)
{
    struct kept *kept = with;
    struct block block;
    uint32_t number = heap_find(kept->heap, (uintptr_t)object, &block);
    if (number == HEAP_NONE)
        return;
    kept->heap->state[number] = BLOCK_ABSENT;
    kept->heap->live--;
}

static void take_out_sheaf(struct kept *kept, const struct sheaf *sheaf, unsigned n)
{
    size_t number = sheaf_number(sheaf);
    if (number >= kept->sheaves || kept->seen[number])
        return;
    kept->seen[number] = 1;
    n = n < sheaf->capacity ? n : sheaf->capacity;
    for (unsigned i = 0; i < n; i++)
        take_out(sheaf->objects[i], kept);
}

static void take_out_counted(struct sheaf *sheaf, void *with)
{
    take_out_sheaf(with, sheaf, sheaf->count);
}

static void take_out_end(struct kept *kept, struct end end)
{
    if (end.at > END_CLAIMED)
        take_out_sheaf(kept, sheaf_detached(sheaf_containing(end)), end_depth(end));
}

static void take_out_slot(struct kept *kept, unsigned slot, const struct kmem_cache *cache)
{
    const struct slot_words *words = slot_words(slot, word_id(cache->number));
    uint64_t top = read_once(words->top);
    struct sheaf *spare = spare_sheaf(atomic_load(&words->spare));
    take_out_end(kept, top_pop_end(top));
    if (!cache->lifo)
        take_out_end(kept, top_push_end(top));
    if (spare)
        take_out_counted(spare, kept);
}

static void take_out_cache(struct kept *kept, const struct kmem_cache *cache)
{
    for (unsigned slot = 0; slot < read_once(slot_top); slot++)
        if (slot_writable(slot))
            take_out_slot(kept, slot, cache);
    for (unsigned domain = 0; domain < slot_domains(); domain++)
        sheaf_stack_each(&cache_barn(cache, domain)->full, take_out_counted, kept);
}

/* Prefilled sheaves and sheaves of deferred frees are marked in their bottom words, wherever they are. */
static void take_out_marked(struct sheaf *sheaf, void *with)
{
    if (sheaf->bottom)
        take_out_counted(sheaf, with);
}

static void visit_stray(struct sheaf *sheaf, void *with)
{
    const struct kept *kept = with;
    size_t number = sheaf_number(sheaf);
    if (number < kept->sheaves && !kept->seen[number])
        kept->stray((uintptr_t)sheaf->objects, (uintptr_t)(sheaf->objects + sheaf->capacity), kept->with);
}

bool heap_take_out_kept(struct heap *heap, maps_visitor *stray, void *with)
{
    struct kept kept = {.heap = heap, .sheaves = sheaf_numbers(), .stray = stray, .with = with};
    kept.seen = leak_map(kept.sheaves);
    if (!kept.seen)
        return false;
    sheaf_pool_each(take_out_counted, &kept);
    for (unsigned i = CACHE_FIRST; i < read_once(cache_top); i++)
        if (cache_in_use(cache_at(i)))
            take_out_cache(&kept, cache_at(i));
    reserve_each(take_out_counted, &kept);
    sheaf_each(take_out_marked, &kept);
    quarantine_each(take_out, &kept);
    sheaf_each(visit_stray, &kept);
    return true;
}
