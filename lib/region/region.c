#include "region/give.h"
#include "space/locks.h"
#include "region/arena.h"
#include "region/dirty.h"
#include "region/guard.h"
#include "region/huge.h"
#include "region/keep.h"
#include "os/clock.h"
#include "os/lock.h"
#include "os/numa.h"
#include "os/vm.h"

struct region_stats region_stats;

unsigned region_node(uint32_t unit)
{
    unsigned index = likely(numa.count == 1) ? 0 : arena_index(unit);
    return index >= ARENA_COUNT ? index - ARENA_COUNT + 1 : 0;
}

bool region_has(uintptr_t unit)
{
    return space.chunks[unit >> space.chunk_shift];
}

uint32_t region_slab_frontier(void)
{
    uint32_t most = 0;
    for (unsigned node = 0; node < numa.count; node++)
        most += read_once(slab_arena(node)->most);
    return most;
}

/* ---- allocation ---- */

static void count_resident(uint32_t unit, uint32_t units)
{
    struct arena *arena = arena_of(unit);
    uint32_t dirty = dirty_count(unit, unit + units);
    count_warm(arena, -(int64_t)dirty);
    enum arena_kind kind = kind_of(arena);
    region.debt[kind] += units - dirty;
    bool last = unit >= arena->start; /* units of earlier stretches are all accounted */
    uint32_t before = !last ? units : arena->reached > unit ? arena->reached - unit : 0;
    keep_took(&region.keep[kind], (before < units ? before : units) - dirty);
    if (last && arena->reached < unit + units)
        arena->reached = unit + units;
}

static void count_taken(uint32_t unit, uint32_t units, enum arena_kind kind)
{
    count_resident(unit, units);
    if (kind == ARENA_SLAB) {
        region_stats.slab_units += units;
        keep_peak(&region.keep[ARENA_SLAB], region_stats.slab_units);
    } else {
        region_stats.large_units += units;
        region_stats.large_blocks++;
        region_stats.large_alloc++;
        keep_peak(&region.keep[ARENA_LARGE], region_stats.large_units);
    }
}

static uint32_t take_in(struct arena *arena, uint32_t units, uint32_t align)
{
    uint32_t unit = arena_take_free(arena, units, align);
    return unit != UNIT_NONE ? unit : arena_take_frontier(arena, units, align);
}

/* Returns the unit, or UNIT_NONE with the run free again if it cannot be committed. */
static uint32_t commit_taken(uint32_t unit, uint32_t units)
{
    if (arena_commit(unit, units))
        return unit;
    arena_insert(arena_of(unit), unit, units, clock_ms());
    return UNIT_NONE;
}

/*
 * The other arenas are the last resort: kinds are separated for order, not for safety. Arenas of other nodes come
 * first: where a node's part of the address space is used up, its memory nearly is as well.
 */
static uint32_t take(enum arena_kind kind, unsigned node, uint32_t units, uint32_t align)
{
    uint32_t unit = UNIT_NONE;
    if (kind == ARENA_LARGE)
        unit = take_in(&region.arenas[ARENA_LARGE], units, align);
    for (unsigned i = 0; i < numa.count && unit == UNIT_NONE; i++)
        unit = take_in(slab_arena((node + i) % numa.count), units, align);
    if (unit == UNIT_NONE && kind == ARENA_SLAB)
        unit = take_in(&region.arenas[ARENA_LARGE], units, align);
    return unit;
}

static void free_locked(uint32_t unit);

void region_refused(void)
{
    note_refused();
}

void region_collect(void)
{
    if (unlikely(atomic_load_explicit(&region.refused, memory_order_relaxed)) &&
        atomic_exchange(&region.refused, false)) {
        keep_little(&region.keep[ARENA_SLAB]);
        keep_little(&region.keep[ARENA_LARGE]);
    }
    if (unlikely(atomic_load_explicit(&region.aside_slabs, memory_order_relaxed)))
        region_stats.slab_units += atomic_exchange(&region.aside_slabs, 0);
    if (unlikely(atomic_load_explicit(&region.aside_large, memory_order_relaxed))) {
        uint32_t n = atomic_exchange(&region.aside_large, 0);
        region_stats.large_units += n;
        region_stats.large_blocks += n;
        region_stats.large_alloc += n;
    }
    if (likely(!atomic_load_explicit(&region.put_aside, memory_order_relaxed)))
        return;
    uint32_t next = atomic_exchange(&region.put_aside, 0);
    while (next) {
        uint32_t unit = next - 1;
        next = unit_at(unit)->bin_next;
        free_locked(unit);
    }
}

/* Locked units take memory, and little is left of a small limit. */
static void refill_reserve(void)
{
    for (int i = 0; i < (atomic_load(&space.locked) ? 1 : RESERVE_UNITS); i++) {
        if (atomic_load_explicit(&region.reserve[i], memory_order_relaxed))
            continue;
        uint32_t unit = arena_take_frontier(&region.arenas[ARENA_SLAB], 1, 1);
        if (unit == UNIT_NONE)
            return;
        count_warm(&region.arenas[ARENA_SLAB], -(int64_t)dirty_count(unit, unit + 1));
        atomic_store(&region.reserve[i], unit + 1);
    }
}

static uint32_t take_reserve(enum arena_kind kind, uint32_t units, uint32_t align)
{
    if (units != 1 || align != 1)
        return UNIT_NONE;
    for (int i = 0; i < RESERVE_UNITS; i++) {
        uint32_t unit = atomic_exchange(&region.reserve[i], 0);
        if (!unit)
            continue;
        unit--;
        if (kind == ARENA_LARGE && !arena_commit(unit, 1)) {
            atomic_store(&region.reserve[i], unit + 1); /* nothing fills it meanwhile: this thread holds the lock */
            return UNIT_NONE;
        }
        unit_at(unit)->length = 1;
        unit_at(unit)->kind = kind == ARENA_SLAB ? UNIT_SLAB : UNIT_LARGE;
        __atomic_fetch_add(&region_stats.reserve_units, 1, __ATOMIC_RELAXED);
        atomic_fetch_add(kind == ARENA_SLAB ? &region.aside_slabs : &region.aside_large, 1);
        return unit;
    }
    return UNIT_NONE;
}

struct request {
    enum arena_kind kind;
    unsigned node; /* of a slab */
    uint32_t units, align;
    bool in_parts; /* the caller commits what it uses of the run */
};

static uint32_t alloc_locked(struct request want, bool *zeroed)
{
    uint32_t unit = take(want.kind, want.node, want.units, want.align);
    if (unit != UNIT_NONE && !want.in_parts)
        unit = commit_taken(unit, want.units);
    if (unit == UNIT_NONE)
        return UNIT_NONE;
    unit_at(unit)->length = want.units;
    unit_at(unit)->kind = want.kind == ARENA_SLAB ? UNIT_SLAB : UNIT_LARGE;
    *zeroed = dirty_count(unit, unit + want.units) == 0;
    count_taken(unit, want.units, want.kind);
    return unit;
}

static uint32_t alloc(struct request want, bool *zeroed)
{
    *zeroed = false;
    if (!lock_acquire(lock_of(LOCK_REGION)))
        return take_reserve(want.kind, want.units, want.align);
    region_collect();
    if (unlikely(!atomic_load_explicit(&region.reserve[0], memory_order_relaxed)))
        refill_reserve();
    uint32_t unit = alloc_locked(want, zeroed);
    void *address = unit_address(unit);
    keep_visible(address);
    const struct arena *arena = slab_arena(want.node);
    huge_grown(region_stats.slab_units, arena);
    uint32_t start = arena->start, frontier = arena->frontier;
    struct debt debt = give_take_debt(want.kind);
    lock_release(lock_of(LOCK_REGION));
    if (*zeroed)
        huge_touch(unit, want.units);
    if (unlikely(guard_on))
        guard_close(want.node, start, frontier);
    if (unlikely(debt.units))
        give_pay(debt);
    keep_visible(address);
    return unit;
}

uint32_t region_alloc(enum arena_kind kind, uint32_t units, uint32_t align, bool *zeroed)
{
    return alloc((struct request){.kind = kind, .units = units, .align = align}, zeroed);
}

uint32_t region_alloc_parts(uint32_t units, uint32_t align, bool *zeroed)
{
    return alloc((struct request){.kind = ARENA_LARGE, .units = units, .align = align, .in_parts = true}, zeroed);
}

uint32_t region_alloc_slab(unsigned node, uint32_t units, bool *zeroed)
{
    return alloc((struct request){.kind = ARENA_SLAB, .node = node, .units = units, .align = 1, .in_parts = true},
                 zeroed);
}

/* ---- freeing ---- */

static void free_locked(uint32_t unit)
{
    struct unit *run = unit_at(unit);
    uint32_t length = run->length, now = clock_ms();
    if (run->kind == UNIT_SLAB) {
        region_stats.slab_units -= length;
    } else {
        region_stats.large_units -= length;
        region_stats.large_blocks--;
        region_stats.large_free++;
    }
    run->kind = UNIT_INSIDE;
    dirty_change(unit, unit + length, true);
    count_warm(arena_of(unit), length);
    arena_insert(arena_of(unit), unit, length, now);
    keep_age(&region.keep[ARENA_SLAB], region_stats.slab_units, warm_of(ARENA_SLAB), now);
    keep_age(&region.keep[ARENA_LARGE], region_stats.large_units, warm_of(ARENA_LARGE), now);
}

void region_free(uint32_t unit)
{
    if (!lock_acquire(lock_of(LOCK_REGION))) {
        uint32_t head = atomic_load(&region.put_aside);
        do {
            unit_at(unit)->bin_next = head;
        } while (!atomic_compare_exchange_weak(&region.put_aside, &head, unit + 1));
        return;
    }
    region_collect();
    free_locked(unit);
    enum arena_kind kind = kind_of(arena_of(unit));
    uint64_t limit = give_limit(kind);
    bool too_much = give_due(kind, limit);
    lock_release(lock_of(LOCK_REGION));
    if (unlikely(too_much))
        give_surplus(kind, limit);
}

static bool grow_locked(uint32_t unit, uint32_t units)
{
    struct unit *run = unit_at(unit);
    struct arena *arena = arena_of(unit);
    uint32_t end = unit + run->length;
    uint32_t more = units - run->length;
    uint32_t have = 0, stamp = 0; /* of the free run that follows */
    if (end < space.unit_count && unit_at(end)->kind == UNIT_FREE && arena_of(end) == arena) {
        have = unit_at(end)->length;
        stamp = unit_at(end)->stamp;
    }
    if (have < more && (end + have != arena->frontier || !arena_move_frontier(arena, end + more)))
        return false;
    if (!arena_commit(end, more)) {
        if (have < more)
            arena_insert(arena, end + have, more - have, clock_ms());
        return false;
    }
    if (have)
        arena_unlink(arena, end);
    if (have > more)
        arena_insert(arena, end + more, have - more, stamp);
    count_resident(end, more);
    region_stats.large_units += more;
    keep_peak(&region.keep[ARENA_LARGE], region_stats.large_units);
    run->length = units;
    return true;
}

bool region_resize(uint32_t unit, uint32_t units)
{
    if (!lock_acquire(lock_of(LOCK_REGION)))
        return false;
    struct unit *run = unit_at(unit);
    bool done = true, too_much = false;
    uint64_t limit = 0;
    if (units > run->length) {
        done = grow_locked(unit, units);
    } else if (units < run->length) {
        uint32_t rest = run->length - units;
        run->length = units;
        region_stats.large_units -= rest;
        count_warm(arena_of(unit), rest);
        dirty_change(unit + units, unit + units + rest, true);
        arena_insert(arena_of(unit), unit + units, rest, clock_ms());
        limit = give_limit(kind_of(arena_of(unit)));
        too_much = give_due(kind_of(arena_of(unit)), limit);
    }
    struct debt debt = give_take_debt(ARENA_LARGE);
    lock_release(lock_of(LOCK_REGION));
    if (unlikely(debt.units))
        give_pay(debt);
    if (unlikely(too_much))
        give_surplus(kind_of(arena_of(unit)), limit);
    return done;
}

/* ---- set-up ---- */

/*
 * The part of the peak, in eighths, that may stay. For slabs all of it, because a program that frees everything
 * and starts again needs all of it. Less for large blocks, because those that come and go in random order leave
 * gaps of half their sum.
 */
#define KEEP_OF_SLABS 8
#define KEEP_OF_LARGE 3

static void set_keep(size_t bytes, bool chosen)
{
    uint64_t units = bytes >> UNIT_SHIFT;
    keep_init(&region.keep[ARENA_SLAB], units, KEEP_OF_SLABS);
    keep_init(&region.keep[ARENA_LARGE], units, KEEP_OF_LARGE);
    region.floor = chosen ? units : 0;
}

void region_keep(size_t bytes, bool chosen)
{
    if (!lock_acquire(lock_of(LOCK_REGION)))
        return;
    set_keep(bytes, chosen);
    lock_release(lock_of(LOCK_REGION));
}

/* Read without the lock by threads that return memory, each of which may still use the former time. */
void region_decay(uint32_t ms)
{
    write_once(region.decay_ms, ms);
}

bool region_keeps_learned(void)
{
    const struct keep *keep = &region.keep[ARENA_SLAB];
    return read_once(keep->now) != read_once(keep->least);
}

bool region_slim(unsigned slots)
{
    if (!lock_acquire(lock_of(LOCK_REGION)))
        return false;
    for (int i = 1; i < RESERVE_UNITS; i++) {
        uint32_t unit = atomic_exchange(&region.reserve[i], 0);
        if (unit)
            arena_insert(arena_of(unit - 1), unit - 1, 1, clock_ms());
    }
    for (unsigned i = 0; i < ARENA_COUNT + numa.count - 1; i++)
        arena_slim(&region.arenas[i]);
    space_slim(region_end(), slots);
    lock_release(lock_of(LOCK_REGION));
    return true;
}

void region_init(size_t keep_bytes, bool chosen, uint32_t decay_ms)
{
    arena_init(&region.arenas[ARENA_SLAB], ARENA_SLAB, true, 0);
    arena_init(&region.arenas[ARENA_LARGE], ARENA_LARGE, false, 0);
    for (unsigned node = 1; node < numa.count; node++)
        arena_init(slab_arena(node), ARENA_COUNT + node - 1, true, node);
    set_keep(keep_bytes, chosen);
    region.decay_ms = decay_ms;
}
