#include "process/map.h"
#include "cache/kmem_cache.h"
#include "memory/region/dirty.h"
#include "memory/region/state.h"
#include "memory/slab/descriptor.h"

/*
 * The tables of the region stay mapped and only grow, so reading them without the lock is safe. What is read may be
 * torn: the length of a span that changes, for example, may be the former one. So lengths are bounded, and a slice
 * that is in no span by what was read starts the search for spans anew.
 */

#define BACK_MOST                                                                                                    \
    (1u << 20) /* slices: a walk that begins further behind the start of a span does not find that span              \
                */

static uint8_t kind_at(uint32_t slice)
{
    return read_once(slice_at(slice)->kind);
}

static bool is_head(uint8_t kind)
{
    return kind != SLICE_INSIDE && kind != SLICE_TAIL;
}

/* Descriptors of slabs that were released, and used again for other slabs, name another slice. */
static void read_slab(struct map_walk *walk)
{
    uint32_t reference = read_once(slice_at(walk->first)->slab);
    const struct slab *slab = reference ? descriptor_of(reference) : NULL;
    walk->cache = SHEAF_SLICE_UNRECORDED;
    walk->out = 0;
    if (!slab || read_once(slab->slice) != walk->first)
        return;
    uint16_t number = read_once(slab->cache);
    uint32_t objects = number < CACHE_MAX ? read_once(cache_at(number)->slab.objects) : 0;
    uint32_t taken = read_once(slab->mark), returned = read_once(slab->returned);
    walk->cache = number < CACHE_MAX ? number : SHEAF_SLICE_UNRECORDED;
    walk->out = returned < taken && taken <= objects ? taken - returned : 0;
}

static void enter_span(struct map_walk *walk, uint32_t first)
{
    uint32_t length = read_once(slice_at(first)->length), most = region_end() - first;
    walk->kind = kind_at(first);
    walk->first = first;
    walk->end = first + (length < 1 ? 1 : length < most ? length : most);
    if (walk->kind == SLICE_SLAB)
        read_slab(walk);
}

struct map_walk map_from(uint32_t slice)
{
    struct map_walk walk = {.at = slice};
    uint32_t least = slice > BACK_MOST ? slice - BACK_MOST : 0;
    for (uint32_t back = slice; back-- > least && kind_at(back) != SLICE_TAIL;)
        if (is_head(kind_at(back))) {
            enter_span(&walk, back);
            break;
        }
    return walk;
}

static bool is_reserved(uint32_t slice)
{
    for (int i = 0; i < RESERVE_SLICES; i++)
        if (atomic_load_explicit(&region.reserve[i], memory_order_relaxed) == slice + 1)
            return true;
    return false;
}

/* A slice in no span: above what its arena uses, or taken from the arena for a handler or to become a span. */
static uint8_t lone_kind(uint32_t slice)
{
    if (!region_has(slice))
        return SHEAF_SLICE_UNMAPPED;
    const struct arena *arena = arena_of(slice);
    bool used = slice >= read_once(arena->start) && slice < read_once(arena->frontier);
    return used || is_reserved(slice) ? SHEAF_SLICE_OTHER : SHEAF_SLICE_UNMAPPED;
}

/* A span that begins with a guard and has several slices is that of a large block (front/malloc/guarded.h). */
static uint8_t kind_in(const struct map_walk *walk, uint32_t slice)
{
    switch (walk->kind) {
    case SLICE_FREE:
        return dirty_count(slice, slice + 1) ? SHEAF_SLICE_FREE : SHEAF_SLICE_RETURNED;
    case SLICE_SLAB:
        return SHEAF_SLICE_SLAB;
    case SLICE_LARGE:
        return SHEAF_SLICE_LARGE;
    case SLICE_GUARD:
        return walk->end - walk->first > 1 ? SHEAF_SLICE_LARGE : SHEAF_SLICE_OTHER;
    default:
        return SHEAF_SLICE_OTHER;
    }
}

struct map_slice map_next(struct map_walk *walk)
{
    uint32_t slice = walk->at++;
    if (slice >= walk->end && is_head(kind_at(slice)))
        enter_span(walk, slice);
    if (slice >= walk->end)
        return (struct map_slice){.kind = lone_kind(slice)};
    return (struct map_slice){
        .kind = kind_in(walk, slice), .first = slice == walk->first, .cache = walk->cache, .out = walk->out};
}
