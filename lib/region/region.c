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

static struct {
    /* of slabs of the first node, of large blocks, of slabs of other nodes */
    struct arena arenas[ARENA_COUNT + NODES_MAX - 1];
    struct keep keep[ARENA_COUNT]; /* for slabs, of all nodes, and for large blocks */
    uint32_t leaving[ARENA_COUNT]; /* units that surplus_out() has taken out to give them back */
    uint32_t no_less[ARENA_COUNT]; /* with so much warm, nothing was found that may go back; 0: not tried */
    uint64_t floor;                /* units that stay resident until all is asked for: the user chose so */
    uint32_t decay_ms;
    uint32_t debt[ARENA_COUNT];                /* units taken that were clean, since the last payment */
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

static struct arena *arena_of(uint32_t unit)
{
    return &region.arenas[arena_index(unit)];
}

unsigned region_node(uint32_t unit)
{
    unsigned index = likely(numa.count == 1) ? 0 : arena_index(unit);
    return index >= ARENA_COUNT ? index - ARENA_COUNT + 1 : 0;
}

uint32_t region_mapped(void)
{
    return arenas_mapped();
}

uint32_t region_end(void)
{
    return arenas_end();
}

uint32_t region_slab_frontier(void)
{
    uint32_t most = 0;
    for (unsigned node = 0; node < numa.count; node++)
        most += read_once(slab_arena(node)->most);
    return most;
}

/* ---- allocation ---- */

static enum arena_kind kind_of(const struct arena *arena)
{
    return arena == &region.arenas[ARENA_LARGE] ? ARENA_LARGE : ARENA_SLAB;
}

/* Units of the kind that are free and may be resident. */
static uint32_t warm_of(enum arena_kind kind)
{
    uint32_t large = region.arenas[ARENA_LARGE].warm;
    return kind == ARENA_LARGE ? large : (uint32_t)region_stats.warm_units - large;
}

static void count_warm(struct arena *arena, int64_t units)
{
    arena->warm += (uint32_t)units;
    region_stats.warm_units += (uint64_t)units;
    keep_warm(&region.keep[kind_of(arena)], warm_of(kind_of(arena)));
}

static void count_resident(uint32_t unit, uint32_t units)
{
    struct arena *arena = arena_of(unit);
    uint32_t dirty = dirty_count(unit, unit + units);
    count_warm(arena, -(int64_t)dirty);
    enum arena_kind kind = kind_of(arena);
    region.debt[kind] += units - dirty;
    bool last = unit >= arena->start; /* of earlier stretches the accounts know all */
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
        next = unit_at(unit)->bin_next;
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
        unit_at(unit)->length = 1;
        unit_at(unit)->kind = kind == ARENA_SLAB ? UNIT_SLAB : UNIT_LARGE;
        __atomic_fetch_add(&region_stats.reserve_units, 1, __ATOMIC_RELAXED);
        atomic_fetch_add(kind == ARENA_SLAB ? &region.aside_slabs : &region.aside_large, 1);
        return unit;
    }
    return UNIT_NONE;
}

/* What is to be paid now. */
struct debt {
    enum arena_kind by;
    uint32_t units; /* 0: nothing */
};

/* The lock is held. */
static struct debt take_debt(enum arena_kind by)
{
    struct debt debt = {by, region.debt[by]};
    if (likely(debt.units < PAY_LEAST))
        return (struct debt){by, 0};
    region.debt[by] = 0;
    if (!region_stats.warm_units)
        debt.units = 0;
    return debt;
}

static void pay(struct debt debt);

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
        unit_at(unit)->length = units;
        unit_at(unit)->kind = kind == ARENA_SLAB ? UNIT_SLAB : UNIT_LARGE;
        *zeroed = dirty_count(unit, unit + units) == 0;
        count_taken(unit, units, kind);
    }
    huge_grown(region_stats.slab_units, slab_arena(node));
    uint32_t start = slab_arena(node)->start, frontier = slab_arena(node)->frontier;
    struct debt debt = take_debt(kind);
    lock_release(lock_of(LOCK_REGION));
    if (*zeroed)
        huge_touch(unit, units);
    if (unlikely(guard_on))
        guard_close(node, start, frontier);
    if (unlikely(debt.units))
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

/* How much of a kind may be free and resident. */
static uint64_t warm_limit(enum arena_kind kind)
{
    uint64_t limit = keep_limit(&region.keep[kind], region_stats.slab_units + region_stats.large_units);
    return limit > region.floor ? limit : region.floor;
}

static void give_surplus(enum arena_kind kind, uint64_t limit);

/*
 * Whether more of the kind is free and resident than may be, not counting what other threads are giving back. Where
 * the last try found only what had better stay, not before there is some more. The lock is held.
 */
#define TRY_AGAIN 16u /* units */
static bool surplus(enum arena_kind kind, uint64_t limit)
{
    uint32_t warm = warm_of(kind);
    if (likely(warm - region.leaving[kind] <= limit)) {
        region.no_less[kind] = 0;
        return false;
    }
    return !region.no_less[kind] || warm >= region.no_less[kind] + TRY_AGAIN;
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
    collect_put_aside();
    free_locked(unit);
    enum arena_kind kind = kind_of(arena_of(unit));
    uint64_t limit = warm_limit(kind);
    bool too_much = surplus(kind, limit);
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
    uint32_t have = 0, stamp = 0; /* of the free run behind it */
    if (end < space.unit_count && unit_at(end)->kind == UNIT_FREE && arena_of(end) == arena) {
        have = unit_at(end)->length;
        stamp = unit_at(end)->stamp;
    }
    if (have < more && (end + have != arena->frontier || !arena_move_frontier(arena, end + more)))
        return false;
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
        limit = warm_limit(kind_of(arena_of(unit)));
        too_much = surplus(kind_of(arena_of(unit)), limit);
    }
    struct debt debt = take_debt(ARENA_LARGE);
    lock_release(lock_of(LOCK_REGION));
    if (unlikely(debt.units))
        pay(debt);
    if (unlikely(too_much))
        give_surplus(kind_of(arena_of(unit)), limit);
    return done;
}

/* ---- giving back ---- */

/* Why memory goes back, and so which and how much. */
enum give_why {
    GIVE_ALL,  /* everything that is free */
    GIVE_AGED, /* what has been free for `age` ms, but for the floor */
    GIVE_PAID, /* the same, `units` in all */
    GIVE_OVER, /* of `kind`: until it has `units` left, and all that has been free for `age` ms */
};

struct give_back {
    enum give_why why;
    uint32_t age;         /* ms; for GIVE_OVER, 0 means none by age */
    enum arena_kind kind; /* of which nothing goes that is kept because it was missed before; ARENA_COUNT: none */
    uint64_t units;
    uint64_t limit; /* GIVE_OVER: half as much again is left before windows are broken up */
};

/* A run that is out of the bins, and which part of it goes back. */
struct leaving {
    struct arena *arena;
    uint32_t unit, length, stamp;
    uint32_t from, to;
};

static uint64_t min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* How many units of an arena may go back, not counting what is too young. */
static uint64_t may_give(const struct give_back *what, const struct arena *arena)
{
    if (what->why == GIVE_ALL)
        return arena->warm;
    bool spared = what->why == GIVE_PAID && what->kind == kind_of(arena);
    uint64_t kept = spared ? keep_learned(&region.keep[what->kind]) : 0;
    uint64_t above_kept = warm_of(kind_of(arena)) > kept ? warm_of(kind_of(arena)) - kept : 0;
    uint64_t above_floor = region_stats.warm_units > region.floor ? region_stats.warm_units - region.floor : 0;
    return min(min(arena->warm, above_kept), above_floor);
}

/* How many units of a run are to go back now; `given` went so far. */
static uint64_t due(const struct give_back *what, uint32_t unit, uint64_t given, uint32_t now)
{
    const struct arena *arena = arena_of(unit);
    uint64_t most = may_give(what, arena);
    uint32_t age = now - unit_at(unit)->stamp;
    if (what->why == GIVE_ALL)
        return most;
    if (what->why == GIVE_PAID)
        return age < what->age || given >= what->units ? 0 : min(most, what->units - given);
    if (what->why == GIVE_AGED)
        return age < what->age ? 0 : most;
    if (what->age && age >= what->age)
        return most;
    uint64_t warm = warm_of(what->kind) - region.leaving[what->kind];
    return warm > what->units ? min(most, warm - what->units) : 0;
}

/* The oldest free and dirty run, in one arena or all that may give something. */
static uint32_t oldest_run(const struct give_back *what, uint32_t now)
{
    uint32_t best = UNIT_NONE;
    for (unsigned i = 0; i < ARENA_COUNT + numa.count - 1; i++) {
        const struct arena *arena = &region.arenas[i];
        uint32_t unit = arena->oldest - 1;
        if (unit == UNIT_NONE || (what->why == GIVE_OVER && what->kind != kind_of(arena)) || !may_give(what, arena))
            continue;
        if (best == UNIT_NONE || now - unit_at(unit)->stamp > now - unit_at(best)->stamp)
            best = unit;
    }
    return best;
}

/* The windows of 2 MiB that lie in a run as a whole; from the end of the run, until they have `wanted` dirty units.
 */
#define WINDOW 32u
static bool whole_windows(struct leaving *leaving, uint64_t wanted)
{
    uint32_t first = (uint32_t)round_up(leaving->unit, WINDOW);
    uint32_t at = (leaving->unit + leaving->length) & ~(WINDOW - 1);
    uint64_t found = 0;
    leaving->to = at;
    while (at > first && found < wanted) {
        at -= WINDOW;
        uint32_t dirty = dirty_count(at, at + WINDOW);
        if (!found && !dirty)
            leaving->to = at;
        found += dirty;
    }
    leaving->from = at;
    return found;
}

/* Of a run that begins at `unit`: nothing is changed yet. */
static struct leaving part_of(const struct give_back *what, uint32_t unit, uint64_t wanted)
{
    struct leaving leaving = {
        .arena = arena_of(unit), .unit = unit, .length = unit_at(unit)->length, .stamp = unit_at(unit)->stamp};
    leaving.to = unit + leaving.length;
    leaving.from = kind_of(leaving.arena) == ARENA_LARGE || region.floor || what->why == GIVE_OVER
                       ? dirty_last(unit, leaving.length, wanted)
                       : unit;
    return leaving;
}

/*
 * Slabs' surplus goes back in whole windows while there are any among the oldest runs: a huge page that is broken up
 * is paid for by all later accesses, and many small pieces cost a system call each. Single units go where half as
 * much again is free as may be, because then the free memory is scattered.
 */
#define LOOK_AT 16 /* runs */
static bool find_surplus(const struct give_back *what, uint64_t wanted, uint32_t oldest, struct leaving *leaving)
{
    uint32_t unit = oldest;
    for (int i = 0; i < LOOK_AT && unit != UNIT_NONE; i++, unit = unit_at(unit)->age_next) {
        *leaving = part_of(what, unit, wanted);
        if (whole_windows(leaving, wanted))
            return true;
    }
    *leaving = part_of(what, oldest, wanted);
    return warm_of(ARENA_SLAB) - region.leaving[ARENA_SLAB] > what->limit + what->limit / 2;
}

/* What goes back next; false: nothing. The lock is held. */
static bool find_leaving(const struct give_back *what, uint64_t given, uint32_t now, struct leaving *leaving)
{
    uint32_t unit = oldest_run(what, now);
    uint64_t wanted = unit != UNIT_NONE ? due(what, unit, given, now) : 0;
    if (!wanted)
        return false;
    if (what->why != GIVE_OVER || what->kind != ARENA_SLAB || region.floor) {
        *leaving = part_of(what, unit, wanted);
        return true;
    }
    if (find_surplus(what, wanted, unit, leaving))
        return true;
    region.no_less[ARENA_SLAB] = warm_of(ARENA_SLAB);
    return false;
}

/* The discarded part of a run is accounted for, and the run filed again. The lock is held. Returns its units. */
static uint32_t file_again(const struct give_back *what, const struct leaving *run, bool done, uint32_t now)
{
    uint32_t units = 0;
    unit_at(run->unit)->kind = UNIT_INSIDE;
    if (done) {
        units = dirty_change(run->from, run->to, false);
        count_warm(run->arena, -(int64_t)units);
        region_stats.purged_units += units;
        if (what->why == GIVE_PAID || (what->why == GIVE_OVER && (!what->age || now - run->stamp < what->age)))
            keep_gave_back(&region.keep[kind_of(run->arena)], units, now);
    }
    arena_insert(run->arena, run->unit, run->length, done ? run->stamp : now);
    if (done)
        arena_trim(run->arena);
    return units;
}

/*
 * One run at a time is taken out, given back without the lock, and filed again. While it is out, its neighbours see
 * UNIT_BUSY and do not join it, and nobody changes its dirty bits. Slabs' old runs go back whole, for the sake of
 * huge pages, unless that would undercut what the user chose to keep; of a run of large blocks its end goes, because
 * requests are met from its start.
 */
static size_t give_back(struct give_back what)
{
    uint64_t given = 0;
    for (int runs = 0; what.why != GIVE_OVER || runs < 64; runs++) {
        if (!lock_acquire(lock_of(LOCK_REGION)))
            break;
        collect_put_aside();
        uint32_t now = clock_ms(); /* under the lock: no run may be stamped later, or it would look old */
        struct leaving run;
        if (!find_leaving(&what, given, now, &run)) {
            lock_release(lock_of(LOCK_REGION));
            break;
        }
        enum arena_kind kind = kind_of(run.arena);
        uint32_t leaving = dirty_count(run.from, run.to);
        arena_unlink(run.arena, run.unit);
        unit_at(run.unit)->kind = UNIT_BUSY;
        region.leaving[kind] += leaving;
        lock_release(lock_of(LOCK_REGION));

        huge_discarding(run.from, run.to - run.from);
        bool done = dirty_discard(run.from, run.to - run.from);

        if (!lock_acquire(lock_of(LOCK_REGION)))
            break;
        region.leaving[kind] -= leaving;
        given += file_again(&what, &run, done, now);
        lock_release(lock_of(LOCK_REGION));
        if (!done) /* it stays warm; another time */
            break;
    }
    return given << UNIT_SHIFT;
}

/* And some more than the surplus, so that not every free has to. */
static void give_surplus(enum arena_kind kind, uint64_t limit)
{
    give_back((struct give_back){
        .why = GIVE_OVER, .age = region.decay_ms, .kind = kind, .units = limit - limit / 4, .limit = limit});
}

size_t region_purge(bool all)
{
    if (all)
        return give_back((struct give_back){.why = GIVE_ALL});
    return region.decay_ms ? give_back((struct give_back){.why = GIVE_AGED, .age = region.decay_ms}) : 0;
}

void region_purge_older(uint32_t ms)
{
    give_back((struct give_back){.why = GIVE_AGED, .age = ms});
}

/*
 * A kind does not pay for itself with what is kept of it because it was missed before; but for the other kind it
 * does.
 */
static void pay(struct debt debt)
{
    if (region.decay_ms)
        give_back((struct give_back){.why = GIVE_PAID, .age = PAY_AGE, .units = debt.units, .kind = debt.by});
}

bool region_warm(void)
{
    return read_once(region_stats.warm_units) > region.floor;
}

/* ---- life ---- */

/*
 * Eighths of the peak that may stay. Slabs: all, as a program that frees everything and begins again needs all. Large
 * blocks: less, because those that come and go in random order leave gaps of half their sum.
 */
#define KEEP_OF_SLABS 8
#define KEEP_OF_LARGE 3

static void keep_chosen(size_t bytes, bool chosen)
{
    uint64_t units = bytes >> UNIT_SHIFT;
    keep_init(&region.keep[ARENA_SLAB], units, KEEP_OF_SLABS);
    keep_init(&region.keep[ARENA_LARGE], units, KEEP_OF_LARGE);
    region.floor = chosen ? units : 0;
}

void region_keep(size_t bytes)
{
    if (!lock_acquire(lock_of(LOCK_REGION)))
        return;
    keep_chosen(bytes, true);
    lock_release(lock_of(LOCK_REGION));
}

void region_keep_at_most(size_t bytes)
{
    if (!lock_acquire(lock_of(LOCK_REGION)))
        return;
    keep_chosen(bytes, false);
    lock_release(lock_of(LOCK_REGION));
}

void region_init(size_t keep_bytes, bool chosen, uint32_t decay_ms)
{
    arena_init(&region.arenas[ARENA_SLAB], ARENA_SLAB, true, 0);
    arena_init(&region.arenas[ARENA_LARGE], ARENA_LARGE, false, 0);
    for (unsigned node = 1; node < numa.count; node++)
        arena_init(slab_arena(node), ARENA_COUNT + node - 1, true, node);
    keep_chosen(keep_bytes, chosen);
    region.decay_ms = decay_ms;
}
