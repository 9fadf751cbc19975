#include "memory/region/purge.h"
#include "memory/region/dirty.h"
#include "memory/region/huge.h"
#include "memory/space/locks.h"
#include "platform/os/clock.h"
#include "platform/os/lock.h"

/*
 * Payment: for memory that is touched for the first time, as much memory that has been free for PAY_AGE ms is
 * returned to the system. A program that moves from slabs to large blocks, or from one size to another, then does
 * not keep both. PAY_AGE is below the decay time, because resident memory grows at this moment; it is not 0,
 * because memory that was freed a moment ago is often allocated again (docs/design.md, "Payment").
 */
#define PAY_AGE   8u
#define PAY_LEAST 16u /* slices: 1 MiB */

/* Why memory is returned, which determines which spans and how much. */
enum purge_why {
    PURGE_ALL,  /* all free memory */
    PURGE_AGED, /* what has been free for `age` ms, down to the floor */
    PURGE_PAID, /* the same, at most `slices` in all */
    PURGE_OVER, /* memory of `kind`: down to `slices`, and all that has been free for `age` ms */
};

struct purge {
    enum purge_why why;
    uint32_t age; /* ms; 0 with PURGE_OVER: age does not matter */
    enum arena_kind kind;
    unsigned spare; /* bits by kind: what is kept of it because it was missed (retain_learned()) stays */
    uint64_t slices;
    uint64_t limit; /* with PURGE_OVER: huge pages are not broken up until this is clearly exceeded */
};

/* A span that is out of the bins, and the part [from, to) of it that is returned. */
struct leaving {
    struct arena *arena;
    uint32_t slice, length, stamp;
    uint32_t from, to;
};

static uint64_t min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The most slices that may be returned from an arena, whatever their age. */
static uint64_t may_purge(const struct purge *what, const struct arena *arena)
{
    if (what->why == PURGE_ALL)
        return arena->warm;
    bool spared = what->spare >> kind_of(arena) & 1;
    uint64_t kept = spared ? retain_learned(&region.retain[kind_of(arena)]) : 0;
    uint64_t above_kept = warm_of(kind_of(arena)) > kept ? warm_of(kind_of(arena)) - kept : 0;
    uint64_t above_floor = region_stats.warm_slices > region.floor ? region_stats.warm_slices - region.floor : 0;
    return min(min(arena->warm, above_kept), above_floor);
}

/* The slices that should be returned now, starting with the span at `slice`. `given` slices were returned before. */
static uint64_t due(const struct purge *what, uint32_t slice, uint64_t given, uint32_t now)
{
    const struct arena *arena = arena_of(slice);
    uint64_t most = may_purge(what, arena);
    uint32_t age = now - slice_at(slice)->stamp;
    if (what->why == PURGE_ALL)
        return most;
    if (what->why == PURGE_PAID)
        return age < what->age || given >= what->slices ? 0 : min(most, what->slices - given);
    if (what->why == PURGE_AGED)
        return age < what->age ? 0 : most;
    if (what->age && age >= what->age)
        return most;
    uint64_t warm = warm_of(what->kind) - region.leaving[what->kind];
    return warm > what->slices ? min(most, warm - what->slices) : 0;
}

/* The oldest free and dirty span of the arenas that may return memory. */
static uint32_t oldest_span(const struct purge *what, uint32_t now)
{
    uint32_t best = SLICE_NONE;
    for (unsigned i = 0; i < ARENA_COUNT + numa.count - 1; i++) {
        const struct arena *arena = &region.arenas[i];
        uint32_t slice = arena->oldest - 1;
        if (slice == SLICE_NONE || (what->why == PURGE_OVER && what->kind != kind_of(arena)) ||
            !may_purge(what, arena))
            continue;
        if (best == SLICE_NONE || now - slice_at(slice)->stamp > now - slice_at(best)->stamp)
            best = slice;
    }
    return best;
}

/*
 * Narrows the part to whole huge pages within the span, taken from its end until they have `wanted` dirty
 * slices. Returns false if the span has none.
 */
static bool whole_huge_pages(struct leaving *leaving, uint64_t wanted)
{
    uint32_t first = (uint32_t)round_up(leaving->slice, HUGE_PAGE_SLICES);
    uint32_t at = (leaving->slice + leaving->length) & ~(HUGE_PAGE_SLICES - 1);
    uint64_t found = 0;
    leaving->to = at;
    while (at > first && found < wanted) {
        at -= HUGE_PAGE_SLICES;
        uint32_t dirty = dirty_count(at, at + HUGE_PAGE_SLICES);
        if (!found && !dirty)
            leaving->to = at;
        found += dirty;
    }
    leaving->from = at;
    return found;
}

/* The part of the span at `slice` that would be returned; changes nothing. */
static struct leaving part_of(const struct purge *what, uint32_t slice, uint64_t wanted)
{
    struct leaving leaving = {
        .arena = arena_of(slice), .slice = slice, .length = slice_at(slice)->length, .stamp = slice_at(slice)->stamp};
    leaving.to = slice + leaving.length;
    bool exact = kind_of(leaving.arena) == ARENA_LARGE || region.floor || what->why == PURGE_OVER ||
                 (what->why == PURGE_AGED && what->spare);
    leaving.from = exact ? dirty_last(slice, leaving.length, wanted) : slice;
    return leaving;
}

/*
 * A surplus of slabs is returned in whole huge pages while there are any among the oldest spans: a huge page that is
 * broken up slows down all later accesses, and many small pieces cost a system call each. Single slices are
 * returned only when the limit is exceeded by a quarter of it, and by at least a huge page, because free memory is
 * then scattered.
 */
#define SCAN_MOST 16 /* spans */
static bool find_surplus(const struct purge *what, uint64_t wanted, uint32_t oldest, struct leaving *leaving)
{
    uint32_t slice = oldest;
    for (int i = 0; i < SCAN_MOST && slice != SLICE_NONE; i++, slice = slice_at(slice)->age_next) {
        *leaving = part_of(what, slice, wanted);
        if (whole_huge_pages(leaving, wanted))
            return true;
    }
    *leaving = part_of(what, oldest, wanted);
    return warm_of(ARENA_SLAB) - region.leaving[ARENA_SLAB] >
           what->limit + (what->limit / 4 > HUGE_PAGE_SLICES ? what->limit / 4 : HUGE_PAGE_SLICES);
}

/* Selects what is returned next; false if nothing is. The caller holds the region's lock. */
static bool find_leaving(const struct purge *what, uint64_t given, uint32_t now, struct leaving *leaving)
{
    uint32_t slice = oldest_span(what, now);
    uint64_t wanted = slice != SLICE_NONE ? due(what, slice, given, now) : 0;
    if (!wanted)
        return false;
    if (what->why != PURGE_OVER || what->kind != ARENA_SLAB || region.floor) {
        *leaving = part_of(what, slice, wanted);
        return true;
    }
    if (find_surplus(what, wanted, slice, leaving))
        return true;
    region.no_less[ARENA_SLAB] = warm_of(ARENA_SLAB);
    return false;
}

/*
 * Accounts for the part that was returned and puts the span back into the bins. Returns the slices that were
 * returned. The caller holds the region's lock.
 */
static uint32_t file_again(const struct purge *what, const struct leaving *span, bool done, uint32_t now)
{
    uint32_t slices = 0;
    slice_at(span->slice)->kind = SLICE_INSIDE;
    if (done) {
        slices = dirty_change(span->from, span->to, false);
        count_warm(span->arena, -(int64_t)slices);
        region_stats.purged_slices += slices;
        if (what->why == PURGE_PAID || (what->why == PURGE_OVER && (!what->age || now - span->stamp < what->age)))
            retain_purged(&region.retain[kind_of(span->arena)], slices, now);
    }
    arena_insert(span->arena, span->slice, span->length, done ? span->stamp : now);
    /* A surplus stays mapped: it may be needed again soon, and then costs no system call. */
    if (done && what->why != PURGE_OVER)
        arena_trim(span->arena);
    return slices;
}

/*
 * Takes out one span at a time, returns its pages without the lock, and puts it back. Meanwhile its kind is
 * SLICE_BUSY, so its neighbours do not join it and its dirty bits do not change. Old spans of slabs are returned
 * whole, to keep huge pages intact, unless that would undercut what the user chose to keep. Of a span of large
 * blocks the end is returned, because requests are served from its start.
 */
static size_t purge(struct purge what)
{
    uint64_t given = 0;
    for (int spans = 0; what.why != PURGE_OVER || spans < 64; spans++) {
        if (!lock_acquire(lock_of(LOCK_REGION)))
            break;
        region_collect();
        uint32_t now = clock_ms(); /* under the lock: a span with a later stamp would look old */
        struct leaving span;
        if (!find_leaving(&what, given, now, &span)) {
            lock_release(lock_of(LOCK_REGION));
            break;
        }
        enum arena_kind kind = kind_of(span.arena);
        uint32_t leaving = dirty_count(span.from, span.to);
        arena_unlink(span.arena, span.slice);
        slice_at(span.slice)->kind = SLICE_BUSY;
        region.leaving[kind] += leaving;
        lock_release(lock_of(LOCK_REGION));

        huge_discarding(span.from, span.to - span.from);
        bool done = dirty_discard(span.from, span.to - span.from);

        if (!lock_acquire(lock_of(LOCK_REGION)))
            break;
        region.leaving[kind] -= leaving;
        given += file_again(&what, &span, done, now);
        lock_release(lock_of(LOCK_REGION));
        if (!done) /* it stays warm; a later step tries again */
            break;
    }
    return given << SLICE_SHIFT;
}

uint64_t purge_limit(enum arena_kind kind)
{
    uint64_t in_use = region_in_use();
    uint64_t limit = retain_limit(&region.retain[kind], in_use, in_use <= read_once(region.fallen_to));
    return limit > region.floor ? limit : region.floor;
}

/*
 * Whether more memory of the kind is free and resident than `limit`, not counting what other threads are
 * returning. If the last attempt found nothing to return, the next one waits until TRY_AGAIN more slices are warm.
 * The caller holds the region's lock.
 */
#define TRY_AGAIN 16u /* slices */
bool purge_due(enum arena_kind kind, uint64_t limit)
{
    uint32_t warm = warm_of(kind);
    if (likely(warm - region.leaving[kind] <= limit)) {
        region.no_less[kind] = 0;
        return false;
    }
    return !region.no_less[kind] || warm >= region.no_less[kind] + TRY_AGAIN;
}

/* Returns a quarter of the limit more than the surplus, so that not every free has to return memory. */
void purge_surplus(enum arena_kind kind, uint64_t limit)
{
    purge((struct purge){
        .why = PURGE_OVER, .age = region.decay_ms, .kind = kind, .slices = limit - limit / 4, .limit = limit});
}

size_t region_purge(bool all)
{
    if (all)
        return purge((struct purge){.why = PURGE_ALL});
    return region.decay_ms ? purge((struct purge){.why = PURGE_AGED, .age = region.decay_ms}) : 0;
}

void region_purge_fallen(void)
{
    if (!region.decay_ms)
        return;
    write_once(region.fallen_to, region_in_use());
    region_purge_idle(false);
}

void region_purge_idle(bool all)
{
    purge((struct purge){.why = PURGE_AGED, .spare = all ? 0 : 1u << ARENA_SLAB | 1u << ARENA_LARGE});
}

struct debt purge_take_debt(enum arena_kind by)
{
    struct debt debt = {by, region.debt[by]};
    if (likely(debt.slices < PAY_LEAST))
        return (struct debt){by, 0};
    region.debt[by] = 0;
    if (!region_stats.warm_slices)
        debt.slices = 0;
    return debt;
}

/*
 * A kind does not pay for itself with memory that it keeps because it was missed, but does pay for the other kind
 * with it.
 */
void purge_old(struct debt debt)
{
    if (region.decay_ms)
        purge((struct purge){.why = PURGE_PAID, .age = PAY_AGE, .slices = debt.slices, .spare = 1u << debt.by});
}
