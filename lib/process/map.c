#include "process/map.h"
#include "cache/kmem_cache.h"
#include "region/dirty.h"
#include "region/state.h"
#include "slab/descriptor.h"

/*
 * The tables of the region stay mapped and only grow, so reading them without the lock is safe. What is read may be
 * torn: the length of a run that changes, for example, may be the former one. So lengths are bounded, and a unit that
 * is in no run by what was read starts the search for runs anew.
 */

#define BACK_MOST                                                                                                    \
    (1u << 20) /* units: a walk that begins further behind the start of a run does not find that run                 \
                */

static uint8_t kind_at(uint32_t unit)
{
    return read_once(unit_at(unit)->kind);
}

static bool is_head(uint8_t kind)
{
    return kind != UNIT_INSIDE && kind != UNIT_TAIL;
}

/* Descriptors of slabs that were released, and used again for other slabs, name another unit. */
static void look_at_slab(struct map_walk *walk)
{
    uint32_t reference = read_once(unit_at(walk->first)->slab);
    const struct slab *slab = reference ? descriptor_of(reference) : NULL;
    walk->cache = SHEAF_UNIT_UNRECORDED;
    walk->out = 0;
    if (!slab || read_once(slab->unit) != walk->first)
        return;
    uint16_t number = read_once(slab->cache);
    uint32_t objects = number < CACHE_MAX ? read_once(cache_at(number)->slab.objects) : 0;
    uint32_t taken = read_once(slab->mark), returned = read_once(slab->returned);
    walk->cache = number < CACHE_MAX ? number : SHEAF_UNIT_UNRECORDED;
    walk->out = returned < taken && taken <= objects ? taken - returned : 0;
}

static void enter_run(struct map_walk *walk, uint32_t first)
{
    uint32_t length = read_once(unit_at(first)->length), most = region_end() - first;
    walk->kind = kind_at(first);
    walk->first = first;
    walk->end = first + (length < 1 ? 1 : length < most ? length : most);
    if (walk->kind == UNIT_SLAB)
        look_at_slab(walk);
}

struct map_walk map_from(uint32_t unit)
{
    struct map_walk walk = {.at = unit};
    uint32_t least = unit > BACK_MOST ? unit - BACK_MOST : 0;
    for (uint32_t back = unit; back-- > least && kind_at(back) != UNIT_TAIL;)
        if (is_head(kind_at(back))) {
            enter_run(&walk, back);
            break;
        }
    return walk;
}

static bool is_reserved(uint32_t unit)
{
    for (int i = 0; i < RESERVE_UNITS; i++)
        if (atomic_load_explicit(&region.reserve[i], memory_order_relaxed) == unit + 1)
            return true;
    return false;
}

/* A unit in no run: above what its arena uses, or taken from the arena for a handler or to become a run. */
static uint8_t lone_kind(uint32_t unit)
{
    if (!region_has(unit))
        return SHEAF_UNIT_UNMAPPED;
    const struct arena *arena = arena_of(unit);
    bool used = unit >= read_once(arena->start) && unit < read_once(arena->frontier);
    return used || is_reserved(unit) ? SHEAF_UNIT_OTHER : SHEAF_UNIT_UNMAPPED;
}

/* A run that begins with a guard and has several units is that of a large block (malloc/guarded.h). */
static uint8_t kind_in(const struct map_walk *walk, uint32_t unit)
{
    switch (walk->kind) {
    case UNIT_FREE:
        return dirty_count(unit, unit + 1) ? SHEAF_UNIT_FREE : SHEAF_UNIT_RETURNED;
    case UNIT_SLAB:
        return SHEAF_UNIT_SLAB;
    case UNIT_LARGE:
        return SHEAF_UNIT_LARGE;
    case UNIT_GUARD:
        return walk->end - walk->first > 1 ? SHEAF_UNIT_LARGE : SHEAF_UNIT_OTHER;
    default:
        return SHEAF_UNIT_OTHER;
    }
}

struct map_unit map_next(struct map_walk *walk)
{
    uint32_t unit = walk->at++;
    if (unit >= walk->end && is_head(kind_at(unit)))
        enter_run(walk, unit);
    if (unit >= walk->end)
        return (struct map_unit){.kind = lone_kind(unit)};
    return (struct map_unit){
        .kind = kind_in(walk, unit), .first = unit == walk->first, .cache = walk->cache, .out = walk->out};
}
