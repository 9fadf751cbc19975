#include "region/region.h"
#include "region/bins.h"
#include "region/dirty.h"
#include "region/guard.h"
#include "region/huge.h"
#include "os/clock.h"
#include "os/lock.h"
#include "os/numa.h"
#include "os/vm.h"

#define RESERVE_UNITS 8

/*
 * Memory that is touched for the first time is paid for with memory that has been free for PAY_AGE ms, as much of it:
 * so a program that goes from slabs to large blocks, or from one size to another, does not keep both. Less than the
 * decay time, because resident memory grows right now; not at once, because what was freed a moment ago is asked for
 * again. (lua building strings: 46 MiB without, 40 with 50 ms or 1 ms, 46 with 100.)
 */
#define PAY_AGE     50u
#define PAY_LEAST   16u /* units: 1 MiB */
#define COMMIT_STEP 16u /* units; a staged reservation grows by 1 MiB and then by an eighth of what it has */

/* Where one kind of run lives. Units from `frontier` up to `end` were never used. */
struct arena {
    uint32_t start, frontier, end;
    uint32_t committed;      /* staged: writable up to here */
    uint32_t oldest, newest; /* free and dirty runs by age, one more than the unit */
    struct bins bins;
};

static struct {
    struct lock lock; /* protects the arenas, the table of units and the dirty bits of runs that are not in use */
    /* of slabs of the first node, of large blocks, of slabs of other nodes */
    struct arena arenas[ARENA_COUNT + NODES_MAX - 1];
    uint32_t node_units; /* in each node's arena of slabs */
    size_t keep_units;
    uint32_t decay_ms;
    uint32_t debt;                             /* units taken that were clean, since the last payment */
    _Atomic uint32_t aside_slabs, aside_large; /* units taken from the reserve that are not in the statistics yet */
    /* both are one more than the unit: */
    _Atomic uint32_t put_aside;              /* runs freed over the lock's holder, linked by bin_next */
    _Atomic uint32_t reserve[RESERVE_UNITS]; /* single units for signal handlers over the holder */
} region;

struct region_stats region_stats;

/* ---- free runs ---- */

static struct arena *slab_arena(unsigned node)
{
    return &region.arenas[node ? ARENA_COUNT + node - 1 : ARENA_SLAB];
}

unsigned region_node(uint32_t unit)
{
    return likely(numa.count == 1)                 ? 0
           : unit / region.node_units < numa.count ? unit / region.node_units
                                                   : numa.count - 1;
}

static struct arena *arena_of(uint32_t unit)
{
    return unit >= region.arenas[ARENA_LARGE].start ? &region.arenas[ARENA_LARGE] : slab_arena(region_node(unit));
}

uint32_t region_frontier(unsigned node)
{
    return read_once(slab_arena(node)->frontier);
}

uint32_t region_slab_frontier(void)
{
    uint32_t used = 0;
    for (unsigned node = 0; node < numa.count; node++)
        used += region_frontier(node) - slab_arena(node)->start;
    return used;
}

void region_used(enum arena_kind arena, uint32_t *from, uint32_t *to)
{
    *from = region.arenas[arena].start;
    *to = arena == ARENA_SLAB ? region_frontier(numa.count - 1) : read_once(region.arenas[arena].frontier);
}

static void age_insert(struct arena *arena, uint32_t unit)
{
    struct unit *run = &space.units[unit];
    run->listed = 1;
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

/* Afterwards its units are of kind UNIT_INSIDE. */
static void run_unlink(struct arena *arena, uint32_t unit)
{
    struct unit *run = &space.units[unit];
    sheaf_assert(run->kind == UNIT_FREE);
    bins_remove(&arena->bins, unit);
    age_remove(arena, unit);
    space.units[unit + run->length - 1].kind = UNIT_INSIDE;
    run->kind = UNIT_INSIDE;
}

/* Join with free neighbours and file. The joined run counts as freed now: it is used now. */
static void run_insert(uint32_t unit, uint32_t length, uint32_t stamp)
{
    struct arena *arena = arena_of(unit);
    if (unit + length < arena->frontier && space.units[unit + length].kind == UNIT_FREE) {
        uint32_t next = unit + length;
        length += space.units[next].length;
        run_unlink(arena, next);
    }
    if (unit > arena->start) {
        struct unit *below = &space.units[unit - 1];
        if (below->kind == UNIT_TAIL || below->kind == UNIT_FREE) {
            uint32_t previous = unit - below->length;
            length += below->length;
            run_unlink(arena, previous);
            unit = previous;
        }
    }
    space.units[unit].stamp = stamp;
    run_link(arena, unit, length);
}

/* ---- allocation ---- */

static bool commit_to(struct arena *arena, uint32_t frontier)
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
    if (!commit_to(arena, guard + 1))
        return false;
    arena->frontier = guard + 1;
    space.units[guard].length = 1;
    space.units[guard].kind = UNIT_GUARD;
    if (guard > start)
        run_insert(start, guard - start, clock_ms());
    return true;
}

/* Take from the frontier, together with a free run that ends there. */
static uint32_t take_frontier(struct arena *arena, uint32_t units, uint32_t align)
{
    if (unlikely(guard_on) && arena != &region.arenas[ARENA_LARGE] && !pass_guard(arena, units, align))
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
    if (at + units > arena->end || !commit_to(arena, (uint32_t)(at + units)))
        return UNIT_NONE;
    if (below)
        run_unlink(arena, start - below);
    arena->frontier = (uint32_t)(at + units);
    if (at > start - below) {
        space.units[start - below].stamp = clock_ms();
        run_link(arena, start - below, (uint32_t)at - (start - below));
    }
    return (uint32_t)at;
}

static uint32_t take_free(struct arena *arena, uint32_t units, uint32_t align)
{
    uint64_t want = (uint64_t)units + align - 1;
    uint32_t run = want < UINT32_MAX ? bins_find(&arena->bins, (uint32_t)want) : UNIT_NONE;
    if (run == UNIT_NONE)
        return UNIT_NONE;
    uint32_t length = space.units[run].length;
    uint32_t stamp = space.units[run].stamp;
    run_unlink(arena, run);
    uint64_t first = space.region >> UNIT_SHIFT;
    uint32_t at = (uint32_t)(round_up(first + run, align) - first);
    if (at > run)
        run_insert(run, at - run, stamp);
    if (run + length > at + units)
        run_insert(at + units, run + length - at - units, stamp);
    return at;
}

static void count_resident(uint32_t unit, uint32_t units)
{
    uint32_t dirty = dirty_count(unit, unit + units);
    region_stats.warm_units -= dirty;
    region.debt += units - dirty;
}

static void count_taken(uint32_t unit, uint32_t units, enum arena_kind kind)
{
    count_resident(unit, units);
    if (kind == ARENA_SLAB) {
        region_stats.slab_units += units;
    } else {
        region_stats.large_units += units;
        region_stats.large_blocks++;
        region_stats.large_alloc++;
    }
}

static uint32_t take_in(struct arena *arena, uint32_t units, uint32_t align)
{
    uint32_t unit = take_free(arena, units, align);
    return unit != UNIT_NONE ? unit : take_frontier(arena, units, align);
}

/*
 * The other arenas are the last resort: separation is for order, not for safety. Those of other nodes come first:
 * where address space of the own one is used up, so is the node's memory, or nearly.
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

/* What signal handlers put aside is freed by whoever comes next, and what they took is counted. */
static void collect_put_aside(void)
{
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
        next = space.units[unit].bin_next;
        free_locked(unit);
    }
}

static void refill_reserve(void)
{
    for (int i = 0; i < RESERVE_UNITS; i++) {
        if (atomic_load_explicit(&region.reserve[i], memory_order_relaxed))
            continue;
        uint32_t unit = take_frontier(&region.arenas[ARENA_SLAB], 1, 1);
        if (unit == UNIT_NONE)
            return;
        region_stats.warm_units -= dirty_count(unit, unit + 1);
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
        space.units[unit].length = 1;
        space.units[unit].kind = kind == ARENA_SLAB ? UNIT_SLAB : UNIT_LARGE;
        __atomic_fetch_add(&region_stats.reserve_units, 1, __ATOMIC_RELAXED);
        atomic_fetch_add(kind == ARENA_SLAB ? &region.aside_slabs : &region.aside_large, 1);
        return unit;
    }
    return UNIT_NONE;
}

/* What is to be paid now; the lock is held. */
static uint32_t take_debt(void)
{
    uint32_t debt = region.debt;
    if (likely(debt < PAY_LEAST))
        return 0;
    region.debt = 0;
    return region_stats.warm_units ? debt : 0;
}

static void pay(uint32_t units);

static uint32_t alloc(enum arena_kind kind, unsigned node, uint32_t units, uint32_t align, bool *zeroed)
{
    *zeroed = false;
    if (!lock_acquire(&region.lock))
        return take_reserve(kind, units, align);
    collect_put_aside();
    if (unlikely(!atomic_load_explicit(&region.reserve[0], memory_order_relaxed)))
        refill_reserve();
    uint32_t unit = take(kind, node, units, align);
    if (unit != UNIT_NONE) {
        space.units[unit].length = units;
        space.units[unit].kind = kind == ARENA_SLAB ? UNIT_SLAB : UNIT_LARGE;
        *zeroed = dirty_count(unit, unit + units) == 0;
        count_taken(unit, units, kind);
    }
    const struct arena *slabs = slab_arena(node);
    uint32_t frontier = slabs->frontier, end = slabs->end;
    uint64_t in_use = region_stats.slab_units;
    uint32_t debt = take_debt();
    lock_release(&region.lock);
    huge_grown(in_use, node, frontier, end);
    if (*zeroed)
        huge_touch(unit, units);
    if (unlikely(guard_on))
        guard_close(node, slabs->start, frontier);
    if (unlikely(debt))
        pay(debt);
    return unit;
}

uint32_t region_alloc(enum arena_kind kind, uint32_t units, uint32_t align, bool *zeroed)
{
    return alloc(kind, 0, units, align, zeroed);
}

uint32_t region_alloc_slab(unsigned node, uint32_t units, bool *zeroed)
{
    return alloc(ARENA_SLAB, node, units, 1, zeroed);
}

/* ---- freeing ---- */

static void free_locked(uint32_t unit)
{
    struct unit *run = &space.units[unit];
    uint32_t length = run->length;
    if (run->kind == UNIT_SLAB) {
        region_stats.slab_units -= length;
    } else {
        region_stats.large_units -= length;
        region_stats.large_blocks--;
        region_stats.large_free++;
    }
    run->kind = UNIT_INSIDE;
    dirty_change(unit, unit + length, true);
    region_stats.warm_units += length;
    run_insert(unit, length, clock_ms());
}

/* The most that may stay resident though free: a fixed amount, and half of what is in use, so that a heap in turnover
 * keeps its pages. */
static bool too_warm(void)
{
    return region_stats.warm_units > region.keep_units + (region_stats.slab_units + region_stats.large_units) / 2;
}

void region_free(uint32_t unit)
{
    if (!lock_acquire(&region.lock)) {
        uint32_t head = atomic_load(&region.put_aside);
        do {
            space.units[unit].bin_next = head;
        } while (!atomic_compare_exchange_weak(&region.put_aside, &head, unit + 1));
        return;
    }
    collect_put_aside();
    free_locked(unit);
    bool purge = too_warm();
    lock_release(&region.lock);
    if (unlikely(purge))
        region_purge(false);
}

static bool grow_locked(uint32_t unit, uint32_t units)
{
    struct unit *run = &space.units[unit];
    struct arena *arena = arena_of(unit);
    uint32_t end = unit + run->length;
    uint32_t more = units - run->length;
    if (end == arena->frontier) {
        if (arena->end - end < more || !commit_to(arena, end + more))
            return false;
        arena->frontier = end + more;
    } else {
        struct unit *next = &space.units[end];
        if (next->kind != UNIT_FREE || next->length < more)
            return false;
        uint32_t left = next->length - more;
        uint32_t stamp = next->stamp;
        run_unlink(arena, end);
        if (left)
            run_insert(end + more, left, stamp);
    }
    count_resident(end, more);
    region_stats.large_units += more;
    run->length = units;
    return true;
}

bool region_resize(uint32_t unit, uint32_t units)
{
    if (!lock_acquire(&region.lock))
        return false;
    struct unit *run = &space.units[unit];
    bool done = true;
    if (units > run->length) {
        done = grow_locked(unit, units);
    } else if (units < run->length) {
        uint32_t rest = run->length - units;
        run->length = units;
        region_stats.large_units -= rest;
        region_stats.warm_units += rest;
        dirty_change(unit + units, unit + units + rest, true);
        run_insert(unit + units, rest, clock_ms());
    }
    uint32_t debt = take_debt();
    lock_release(&region.lock);
    if (unlikely(debt))
        pay(debt);
    return done;
}

/* ---- giving back ---- */

/* Take the oldest run whose time has come out of its arena. */
static uint32_t oldest_due(bool all, uint32_t now, uint32_t age)
{
    uint32_t best = UNIT_NONE;
    for (unsigned i = 0; i < ARENA_COUNT + numa.count - 1; i++) {
        uint32_t unit = region.arenas[i].oldest - 1;
        if (unit == UNIT_NONE)
            continue;
        if (best == UNIT_NONE || now - space.units[unit].stamp > now - space.units[best].stamp)
            best = unit;
    }
    if (best == UNIT_NONE)
        return UNIT_NONE;
    bool aged = age && now - space.units[best].stamp >= age;
    return all || aged || too_warm() ? best : UNIT_NONE;
}

/*
 * One run at a time is taken out, given back without the lock, and filed again. While it is out, its neighbours see
 * UNIT_BUSY and do not join it, and nobody changes its dirty bits.
 */
static size_t give_back(bool all, uint32_t age, size_t most)
{
    size_t given = 0;
    for (int runs = 0; given < most && (all || runs < 64); runs++) {
        if (!lock_acquire(&region.lock))
            break;
        collect_put_aside();
        uint32_t now = clock_ms(); /* under the lock: no run may be stamped later, or it would look old */
        uint32_t unit = oldest_due(all, now, age);
        if (unit == UNIT_NONE) {
            lock_release(&region.lock);
            break;
        }
        uint32_t length = space.units[unit].length;
        uint32_t stamp = space.units[unit].stamp;
        run_unlink(arena_of(unit), unit);
        space.units[unit].kind = UNIT_BUSY;
        lock_release(&region.lock);

        huge_discarding(unit, length);
        bool done = dirty_discard(unit, length);

        if (!lock_acquire(&region.lock))
            break;
        space.units[unit].kind = UNIT_INSIDE;
        if (done) {
            uint32_t units = dirty_change(unit, unit + length, false);
            region_stats.warm_units -= units;
            region_stats.purged_units += units;
            given += (size_t)units << UNIT_SHIFT;
        }
        run_insert(unit, length, done ? stamp : now);
        lock_release(&region.lock);
        if (!done) /* it stays warm; another time */
            break;
    }
    return given;
}

size_t region_purge(bool all)
{
    return give_back(all, region.decay_ms, SIZE_MAX);
}

void region_purge_older(uint32_t ms)
{
    give_back(false, ms, SIZE_MAX);
}

static void pay(uint32_t units)
{
    if (region.decay_ms)
        give_back(false, PAY_AGE, (size_t)units << UNIT_SHIFT);
}

bool region_warm(void)
{
    return read_once(region_stats.warm_units) != 0;
}

/* ---- life ---- */

void region_keep(size_t bytes)
{
    write_once(region.keep_units, bytes >> UNIT_SHIFT);
}

void region_init(size_t keep_bytes, uint32_t decay_ms)
{
    uint32_t half = space.unit_count / 2;
    region.node_units = half / numa.count & ~31u; /* whole huge pages */
    for (unsigned node = 0; node < numa.count; node++) {
        uint32_t start = node * region.node_units, end = node + 1 < numa.count ? start + region.node_units : half;
        *slab_arena(node) = (struct arena){.start = start, .frontier = start, .end = end, .committed = start};
        if (unlikely(numa.count > 1))
            numa_place(unit_address(start), (size_t)(end - start) << UNIT_SHIFT, node);
    }
    region.arenas[ARENA_LARGE] =
        (struct arena){.start = half, .frontier = half, .end = space.unit_count, .committed = half};
    if (unlikely(numa.interleave))
        numa_interleave(unit_address(0), (size_t)space.unit_count << UNIT_SHIFT);
    region.keep_units = keep_bytes >> UNIT_SHIFT;
    region.decay_ms = decay_ms;
}

bool region_lock(void)
{
    return lock_acquire(&region.lock);
}

void region_unlock(void)
{
    lock_release(&region.lock);
}

void region_reset(void)
{
    lock_reset(&region.lock);
}

bool region_locked_by_self(void)
{
    return lock_held_by_self(&region.lock);
}
