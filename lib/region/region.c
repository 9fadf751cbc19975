#include "region/region.h"
#include "region/locks.h"
#include "region/arena.h"
#include "region/dirty.h"
#include "region/guard.h"
#include "region/huge.h"
#include "region/keep.h"
#include "os/clock.h"
#include "os/lock.h"
#include "os/numa.h"
#include "os/vm.h"

#define RESERVE_UNITS 8

/*
 * Memory that is touched for the first time is paid for with memory that has been free for PAY_AGE ms, as much of it:
 * so a program that goes from slabs to large blocks, or from one size to another, does not keep both. Less than the
 * decay time, because resident memory grows right now; not at once, because what was freed a moment ago is asked for
 * again. (lua building strings: 46 MiB without, 40 with 50 ms or 1 ms, 46 with 100; jq 173 with 50 ms, 167 with 8.)
 */
#define PAY_AGE   8u
#define PAY_LEAST 16u /* units: 1 MiB */

/*
 * What is more than may stay warm goes back when it has been free for so many ms: what comes and goes faster is left
 * alone. (Large blocks in random order take 4 us each, and 49 where all of it goes back at once.)
 */
#define SURPLUS_AGE 16u

static struct {
    /* of slabs of the first node, of large blocks, of slabs of other nodes */
    struct arena arenas[ARENA_COUNT + NODES_MAX - 1];
    uint32_t node_units;    /* in each node's arena of slabs */
    size_t keep_slabs;      /* units */
    struct keep keep_large; /* for large blocks */
    uint32_t decay_ms;
    uint32_t debt;                             /* units taken that were clean, since the last payment */
    _Atomic uint32_t aside_slabs, aside_large; /* units taken from the reserve that are not in the statistics yet */
    /* both are one more than the unit: */
    _Atomic uint32_t put_aside;              /* runs freed over the lock's holder, linked by bin_next */
    _Atomic uint32_t reserve[RESERVE_UNITS]; /* single units for signal handlers over the holder */
} region;

struct region_stats region_stats;

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

/* ---- allocation ---- */

static void count_warm(struct arena *arena, int64_t units)
{
    arena->warm += (uint32_t)units;
    region_stats.warm_units += (uint64_t)units;
}

static void count_resident(uint32_t unit, uint32_t units)
{
    struct arena *arena = arena_of(unit);
    uint32_t dirty = dirty_count(unit, unit + units);
    count_warm(arena, -(int64_t)dirty);
    region.debt += units - dirty;
    if (arena == &region.arenas[ARENA_LARGE])
        keep_took(&region.keep_large, units - dirty);
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
    uint32_t unit = arena_take_free(arena, units, align);
    return unit != UNIT_NONE ? unit : arena_take_frontier(arena, units, align);
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
    if (!lock_acquire(lock_of(LOCK_REGION)))
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
    lock_release(lock_of(LOCK_REGION));
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
    keep_age(&region.keep_large, now);
}

/*
 * How much of an arena stays warm whatever its age. Slabs: half of what is in use and a fixed amount, because a heap
 * in turnover needs its pages again, and those of huge pages are dear. Large blocks: see region/keep.h.
 */
static uint64_t warm_limit(const struct arena *arena)
{
    uint64_t in_use = region_stats.slab_units + region_stats.large_units;
    return arena == &region.arenas[ARENA_LARGE] ? keep_limit(&region.keep_large, in_use)
                                                : region.keep_slabs + in_use / 2;
}

/* Which runs go back: those free for `age` ms (0: none by age), and others until `leave` warm units are left. */
struct give_back {
    const struct arena *arena; /* NULL: all */
    uint32_t age;
    uint64_t leave; /* in each arena */
    size_t most;    /* bytes; 0: no bound */
};
static size_t give_back(struct give_back what);

void region_free(uint32_t unit)
{
    if (!lock_acquire(lock_of(LOCK_REGION))) {
        uint32_t head = atomic_load(&region.put_aside);
        do {
            space.units[unit].bin_next = head;
        } while (!atomic_compare_exchange_weak(&region.put_aside, &head, unit + 1));
        return;
    }
    collect_put_aside();
    free_locked(unit);
    const struct arena *arena = arena_of(unit);
    uint64_t limit = warm_limit(arena);
    bool too_much = arena->warm > limit;
    lock_release(lock_of(LOCK_REGION));
    if (unlikely(too_much)) /* and some more, so that not every free has to */
        give_back((struct give_back){.arena = arena, .age = region.decay_ms, .leave = limit - limit / 4});
}

static bool grow_locked(uint32_t unit, uint32_t units)
{
    struct unit *run = &space.units[unit];
    struct arena *arena = arena_of(unit);
    uint32_t end = unit + run->length;
    uint32_t more = units - run->length;
    if (end == arena->frontier) {
        if (arena->end - end < more || !arena_commit(arena, end + more))
            return false;
        arena->frontier = end + more;
    } else {
        struct unit *next = &space.units[end];
        if (next->kind != UNIT_FREE || next->length < more)
            return false;
        uint32_t left = next->length - more;
        uint32_t stamp = next->stamp;
        arena_unlink(arena, end);
        if (left)
            arena_insert(arena, end + more, left, stamp);
    }
    count_resident(end, more);
    region_stats.large_units += more;
    run->length = units;
    return true;
}

bool region_resize(uint32_t unit, uint32_t units)
{
    if (!lock_acquire(lock_of(LOCK_REGION)))
        return false;
    struct unit *run = &space.units[unit];
    bool done = true;
    if (units > run->length) {
        done = grow_locked(unit, units);
    } else if (units < run->length) {
        uint32_t rest = run->length - units;
        run->length = units;
        region_stats.large_units -= rest;
        count_warm(arena_of(unit), rest);
        dirty_change(unit + units, unit + units + rest, true);
        arena_insert(arena_of(unit), unit + units, rest, clock_ms());
    }
    uint32_t debt = take_debt();
    lock_release(lock_of(LOCK_REGION));
    if (unlikely(debt))
        pay(debt);
    return done;
}

/* ---- giving back ---- */

/* The oldest free and dirty run, in one arena or all. */
static uint32_t oldest_run(const struct arena *only, uint32_t now)
{
    uint32_t best = UNIT_NONE;
    for (unsigned i = 0; i < ARENA_COUNT + numa.count - 1; i++) {
        uint32_t unit = region.arenas[i].oldest - 1;
        if (unit == UNIT_NONE || (only && only != &region.arenas[i]))
            continue;
        if (best == UNIT_NONE || now - space.units[unit].stamp > now - space.units[best].stamp)
            best = unit;
    }
    return best;
}

/*
 * One run at a time is taken out, given back without the lock, and filed again. While it is out, its neighbours see
 * UNIT_BUSY and do not join it, and nobody changes its dirty bits.
 */
static size_t give_back(struct give_back what)
{
    size_t given = 0;
    for (int runs = 0; (!what.most || given < what.most) && (!what.leave || runs < 64); runs++) {
        if (!lock_acquire(lock_of(LOCK_REGION)))
            break;
        collect_put_aside();
        uint32_t now = clock_ms(); /* under the lock: no run may be stamped later, or it would look old */
        uint32_t unit = oldest_run(what.arena, now);
        struct arena *arena = unit != UNIT_NONE ? arena_of(unit) : NULL;
        bool aged = arena && what.age && now - space.units[unit].stamp >= what.age;
        bool surplus =
            arena && arena->warm > what.leave && (!what.leave || now - space.units[unit].stamp >= SURPLUS_AGE);
        if (!aged && !surplus) {
            lock_release(lock_of(LOCK_REGION));
            break;
        }
        uint32_t length = space.units[unit].length;
        uint32_t stamp = space.units[unit].stamp;
        arena_unlink(arena, unit);
        space.units[unit].kind = UNIT_BUSY;
        lock_release(lock_of(LOCK_REGION));

        huge_discarding(unit, length);
        bool done = dirty_discard(unit, length);

        if (!lock_acquire(lock_of(LOCK_REGION)))
            break;
        space.units[unit].kind = UNIT_INSIDE;
        if (done) {
            uint32_t units = dirty_change(unit, unit + length, false);
            count_warm(arena, -(int64_t)units);
            region_stats.purged_units += units;
            given += (size_t)units << UNIT_SHIFT;
            if (!aged && what.arena == &region.arenas[ARENA_LARGE])
                keep_gave_back(&region.keep_large, units, now);
        }
        arena_insert(arena_of(unit), unit, length, done ? stamp : now);
        lock_release(lock_of(LOCK_REGION));
        if (!done) /* it stays warm; another time */
            break;
    }
    return given;
}

size_t region_purge(bool all)
{
    return give_back((struct give_back){.age = region.decay_ms, .leave = all ? 0 : UINT64_MAX});
}

void region_purge_older(uint32_t ms)
{
    give_back((struct give_back){.age = ms, .leave = UINT64_MAX});
}

static void pay(uint32_t units)
{
    if (region.decay_ms)
        give_back((struct give_back){.age = PAY_AGE, .leave = UINT64_MAX, .most = (size_t)units << UNIT_SHIFT});
}

bool region_warm(void)
{
    return read_once(region_stats.warm_units) != 0;
}

/* ---- life ---- */

void region_keep(size_t bytes)
{
    if (!lock_acquire(lock_of(LOCK_REGION)))
        return;
    keep_fix(&region.keep_large, bytes >> UNIT_SHIFT);
    region.keep_slabs = bytes >> UNIT_SHIFT;
    lock_release(lock_of(LOCK_REGION));
}

void region_init(size_t keep_bytes, uint32_t decay_ms)
{
    uint32_t half = space.unit_count / 2;
    region.node_units = half / numa.count & ~31u; /* whole huge pages */
    for (unsigned node = 0; node < numa.count; node++) {
        uint32_t start = node * region.node_units, end = node + 1 < numa.count ? start + region.node_units : half;
        arena_init(slab_arena(node), start, end);
        slab_arena(node)->guarded = true;
        if (unlikely(numa.count > 1))
            numa_place(unit_address(start), (size_t)(end - start) << UNIT_SHIFT, node);
    }
    arena_init(&region.arenas[ARENA_LARGE], half, space.unit_count);
    if (unlikely(numa.interleave))
        numa_interleave(unit_address(0), (size_t)space.unit_count << UNIT_SHIFT);
    keep_init(&region.keep_large, keep_bytes >> UNIT_SHIFT);
    region.keep_slabs = keep_bytes >> UNIT_SHIFT;
    region.decay_ms = decay_ms;
}
