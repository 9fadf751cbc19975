#include "region/arena.h"
#include "region/dirty.h"
#include "region/guard.h"
#include "region/space.h"
#include "os/clock.h"
#include "os/vm.h"

#define COMMIT_STEP 16u /* units; a staged reservation grows by 1 MiB and then by an eighth of what it has */

void arena_init(struct arena *arena, uint32_t start, uint32_t end)
{
    arena->start = arena->frontier = arena->committed = start; /* the rest is zero and need not be touched */
    arena->end = end;
}

/* ---- free runs ---- */

/* Among the oldest belongs what is left of one, or it would hide behind all that is younger. */
static void age_insert(struct arena *arena, uint32_t unit)
{
    struct unit *run = &space.units[unit];
    run->listed = 1;
    if (arena->oldest && (int32_t)(space.units[arena->oldest - 1].stamp - run->stamp) > 0) {
        run->age_prev = UNIT_NONE;
        run->age_next = arena->oldest - 1;
        space.units[run->age_next].age_prev = unit;
        arena->oldest = unit + 1;
        return;
    }
    run->age_next = UNIT_NONE;
    run->age_prev = arena->newest - 1;
    if (arena->newest)
        space.units[run->age_prev].age_next = unit;
    else
        arena->oldest = unit + 1;
    arena->newest = unit + 1;
}

static void age_remove(struct arena *arena, uint32_t unit)
{
    struct unit *run = &space.units[unit];
    if (!run->listed)
        return;
    run->listed = 0;
    if (run->age_prev != UNIT_NONE)
        space.units[run->age_prev].age_next = run->age_next;
    else
        arena->oldest = run->age_next + 1;
    if (run->age_next != UNIT_NONE)
        space.units[run->age_next].age_prev = run->age_prev;
    else
        arena->newest = run->age_prev + 1;
}

static void run_link(struct arena *arena, uint32_t unit, uint32_t length)
{
    struct unit *run = &space.units[unit];
    run->length = length;
    run->kind = UNIT_FREE;
    if (length > 1) {
        space.units[unit + length - 1].length = length;
        space.units[unit + length - 1].kind = UNIT_TAIL;
    }
    bins_insert(&arena->bins, unit);
    if (dirty_count(unit, unit + length))
        age_insert(arena, unit);
}

void arena_unlink(struct arena *arena, uint32_t unit)
{
    struct unit *run = &space.units[unit];
    sheaf_assert(run->kind == UNIT_FREE);
    bins_remove(&arena->bins, unit);
    age_remove(arena, unit);
    space.units[unit + run->length - 1].kind = UNIT_INSIDE;
    run->kind = UNIT_INSIDE;
}

void arena_insert(struct arena *arena, uint32_t unit, uint32_t length, uint32_t stamp)
{
    if (unit + length < arena->frontier && space.units[unit + length].kind == UNIT_FREE) {
        uint32_t next = unit + length;
        length += space.units[next].length;
        arena_unlink(arena, next);
    }
    if (unit > arena->start) {
        struct unit *below = &space.units[unit - 1];
        if (below->kind == UNIT_TAIL || below->kind == UNIT_FREE) {
            uint32_t previous = unit - below->length;
            length += below->length;
            arena_unlink(arena, previous);
            unit = previous;
        }
    }
    space.units[unit].stamp = stamp;
    run_link(arena, unit, length);
}

/* ---- taking ---- */

bool arena_commit(struct arena *arena, uint32_t frontier)
{
    if (likely(!vm_staged) || frontier <= arena->committed)
        return true;
    uint32_t used = arena->committed - arena->start;
    uint32_t step = used / 8 > COMMIT_STEP ? used / 8 : COMMIT_STEP;
    uint32_t to = frontier + step < arena->end ? frontier + step : arena->end;
    for (;; to = frontier) { /* near the limit, exactly what is needed may still be granted */
        uint32_t n = to - arena->committed;
        if (space_commit(unit_address(arena->committed), (size_t)n << UNIT_SHIFT) &&
            space_commit(&space.units[arena->committed], n * sizeof(struct unit)) &&
            space_commit(unit_id(arena->committed + n - 1), n * sizeof(uint16_t)) &&
            space_commit(&space.dirty[arena->committed / 64], (n / 64 + 2) * 8)) {
            arena->committed = to;
            return true;
        }
        if (to == frontier)
            return false;
    }
}

/*
 * Where groups of slabs are guarded, no run crosses a guard: what is left before it is freed, and the frontier goes
 * behind it. False: so long a run never fits.
 */
static bool pass_guard(struct arena *arena, uint32_t units, uint32_t align)
{
    uint32_t start = arena->frontier, guard = guard_from(start);
    if (units >= GUARD_GROUP || align > 1 || guard + GUARD_GROUP >= arena->end)
        return false;
    if (start + units <= guard)
        return true;
    if (!arena_commit(arena, guard + 1))
        return false;
    arena->frontier = guard + 1;
    space.units[guard].length = 1;
    space.units[guard].kind = UNIT_GUARD;
    if (guard > start)
        arena_insert(arena, start, guard - start, clock_ms());
    return true;
}

uint32_t arena_take_frontier(struct arena *arena, uint32_t units, uint32_t align)
{
    if (unlikely(guard_on) && arena->guarded && !pass_guard(arena, units, align))
        return UNIT_NONE;
    uint32_t start = arena->frontier;
    uint32_t below = 0;
    if (start > arena->start) {
        struct unit *last = &space.units[start - 1];
        if (last->kind == UNIT_TAIL || last->kind == UNIT_FREE)
            below = last->length;
    }
    uint64_t first = space.region >> UNIT_SHIFT;
    uint64_t at = round_up(first + start - below, align) - first;
    if (at + units > arena->end || !arena_commit(arena, (uint32_t)(at + units)))
        return UNIT_NONE;
    if (below)
        arena_unlink(arena, start - below);
    arena->frontier = (uint32_t)(at + units);
    if (at > start - below) {
        space.units[start - below].stamp = clock_ms();
        run_link(arena, start - below, (uint32_t)at - (start - below));
    }
    return (uint32_t)at;
}

uint32_t arena_take_free(struct arena *arena, uint32_t units, uint32_t align)
{
    uint64_t want = (uint64_t)units + align - 1;
    uint32_t run = want < UINT32_MAX ? bins_find(&arena->bins, (uint32_t)want) : UNIT_NONE;
    if (run == UNIT_NONE)
        return UNIT_NONE;
    uint32_t length = space.units[run].length;
    uint32_t stamp = space.units[run].stamp;
    arena_unlink(arena, run);
    uint64_t first = space.region >> UNIT_SHIFT;
    uint32_t at = (uint32_t)(round_up(first + run, align) - first);
    if (at > run)
        arena_insert(arena, run, at - run, stamp);
    if (run + length > at + units)
        arena_insert(arena, at + units, run + length - at - units, stamp);
    return at;
}
