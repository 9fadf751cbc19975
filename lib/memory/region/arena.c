#include "memory/region/arena.h"
#include "memory/region/dirty.h"
#include "memory/region/guard.h"
#include "memory/region/huge.h"
#include "memory/region/region.h"
#include "memory/region/state.h"
#include "memory/space/hole.h"
#include "platform/os/clock.h"
#include "platform/os/numa.h"
#include "platform/os/vm.h"

/* Slices. Memory is mapped in steps of a quarter of what the arena uses, between 1 and 64 MiB. */
#define STEP_LEAST  16u
#define STEP_MOST   1024u
#define LOCKED_PART 16u /* where memory is locked, each page takes memory: steps are this part of what is used */
#define WHOLE_FROM                                                                                                   \
    64u /* slices, 4 MiB: smaller arenas are not rounded to 2 MiB, as overcommit off charges for them */
#define TRIM_LEAST 64u    /* slices: shorter ends of an arena are not unmapped */
#define ASK_FROM   16384u /* slices, 1 GiB: deal() first checks that the system grants so much */
#define HOPS       24     /* attempts to get past foreign mappings; unless holes are known, each skips twice as far */
#define HOP_FIRST  1024u  /* slices: 64 MiB */

static uint32_t dealt;  /* the end of all chunks that were dealt out */
static uint32_t mapped; /* slices of all arenas that are mapped */

/* Failures to find room for `less` slices or fewer. */
static struct {
    struct space_taken taken;
    uint32_t less;
} no_room;

bool region_crowded(void)
{
    return read_once(no_room.taken.skip) || read_once(space.slabs.taken.skip) ||
           read_once(space.sheaves.taken.skip) || read_once(space.ids_table.taken.skip) ||
           read_once(space.slices_table.taken.skip);
}

uint32_t region_end(void)
{
    return read_once(dealt);
}

uint32_t region_mapped(void)
{
    return read_once(mapped);
}

/* Slices that the arena has used, gaps included, without those that were unmapped at its end. */
static uint32_t used(const struct arena *arena)
{
    return arena->passed + arena->frontier - arena->start;
}

static void set_frontier(struct arena *arena, uint32_t frontier)
{
    arena->frontier = frontier;
    if (used(arena) > arena->most)
        write_once(arena->most, used(arena));
}

/* ---- free spans ---- */

/*
 * A span older than the oldest in the list goes to the front, because at the end it would hide behind younger spans.
 * It is the rest of a span that was divided. All other spans go to the end.
 */
static void age_insert(struct arena *arena, uint32_t slice)
{
    struct slice *span = slice_at(slice);
    span->listed = 1;
    if (arena->oldest && (int32_t)(slice_at(arena->oldest - 1)->stamp - span->stamp) > 0) {
        span->age_prev = SLICE_NONE;
        span->age_next = arena->oldest - 1;
        slice_at(span->age_next)->age_prev = slice;
        arena->oldest = slice + 1;
        return;
    }
    span->age_next = SLICE_NONE;
    span->age_prev = arena->newest - 1;
    if (arena->newest)
        slice_at(span->age_prev)->age_next = slice;
    else
        arena->oldest = slice + 1;
    arena->newest = slice + 1;
}

static void age_remove(struct arena *arena, uint32_t slice)
{
    struct slice *span = slice_at(slice);
    if (!span->listed)
        return;
    span->listed = 0;
    if (span->age_prev != SLICE_NONE)
        slice_at(span->age_prev)->age_next = span->age_next;
    else
        arena->oldest = span->age_next + 1;
    if (span->age_next != SLICE_NONE)
        slice_at(span->age_next)->age_prev = span->age_prev;
    else
        arena->newest = span->age_prev + 1;
}

static void span_link(struct arena *arena, uint32_t slice, uint32_t length)
{
    struct slice *span = slice_at(slice);
    span->length = length;
    span->kind = SLICE_FREE;
    if (length > 1) {
        slice_at(slice + length - 1)->length = length;
        slice_at(slice + length - 1)->kind = SLICE_TAIL;
    }
    bins_insert(&arena->bins, slice);
    if (dirty_count(slice, slice + length))
        age_insert(arena, slice);
}

void arena_unlink(struct arena *arena, uint32_t slice)
{
    struct slice *span = slice_at(slice);
    sheaf_assert(span->kind == SLICE_FREE);
    bins_remove(&arena->bins, slice);
    age_remove(arena, slice);
    slice_at(slice + span->length - 1)->kind = SLICE_INSIDE;
    span->kind = SLICE_INSIDE;
}

static bool is_of(const struct arena *arena, uint32_t slice)
{
    return arena_index(slice) == arena->index;
}

/* The length of the arena's free span that ends just below `slice`; 0 if there is none. */
static uint32_t free_below(const struct arena *arena, uint32_t slice)
{
    const struct slice *last = slice_at(slice - 1);
    return (last->kind == SLICE_TAIL || last->kind == SLICE_FREE) && is_of(arena, slice - 1) ? last->length : 0;
}

void arena_insert(struct arena *arena, uint32_t slice, uint32_t length, uint32_t stamp)
{
    uint32_t next = slice + length;
    if (next < space.slice_count && slice_at(next)->kind == SLICE_FREE && is_of(arena, next)) {
        length += slice_at(next)->length;
        arena_unlink(arena, next);
    }
    uint32_t below = slice ? free_below(arena, slice) : 0;
    if (below) {
        arena_unlink(arena, slice - below);
        slice -= below;
        length += below;
    }
    slice_at(slice)->stamp = stamp;
    span_link(arena, slice, length);
}

/* ---- growing ---- */

/*
 * Deals out at least `slices` slices from `start`, which is at or above the end of all chunks dealt out so far.
 * Returns the end of the new chunks, or 0 when they are not available. Their tables stay mapped even if the system
 * then refuses memory for the slices. Very large requests therefore first check that the system grants so much.
 */
static uint32_t deal(const struct arena *arena, uint64_t start, uint64_t slices)
{
    uint64_t chunk = 1ull << space.chunk_shift, share = round_up(used(arena) / 8, chunk);
    if (start + slices > space.slice_most ||
        (slices >= ASK_FROM && !space.locked && !vm_grants(slices << SLICE_SHIFT)))
        return 0;
    uint64_t end = round_up(start + (slices < share ? share : slices), chunk);
    end = end < space.slice_most ? end : space.slice_most;
    if (!space_reach((uint32_t)end) || !space_reach_shadow((uint32_t)end))
        return 0;
    for (uint64_t i = start >> space.chunk_shift; i << space.chunk_shift < end; i++)
        space.chunks[i] = (uint8_t)(arena->index + 1);
    write_once(dealt, (uint32_t)end);
    return (uint32_t)end;
}

/* Extends the extent to reach `to`; returns whether it does. */
static bool extent_reach(struct arena *arena, uint64_t to)
{
    if (to <= arena->end)
        return true;
    uint32_t end = arena->end && arena->end == dealt ? deal(arena, dealt, to - dealt) : 0;
    arena->end = end ? end : arena->end;
    return end;
}

/* Sets the memory policy of [from, to) where there are several nodes. */
static void bind(const struct arena *arena, uint32_t from, uint32_t to)
{
    size_t bytes = (size_t)(to - from) << SLICE_SHIFT;
    if (unlikely(numa.interleave))
        numa_interleave(slice_address(from), bytes);
    else if (unlikely(numa.count > 1) && arena->slabs)
        numa_place(slice_address(from), bytes, arena->node);
}

/* Maps slices up to `to`. */
static enum vm_extent map_to(struct arena *arena, uint32_t to)
{
    enum vm_extent done = vm_extend_staged(slice_address(arena->mapped), (size_t)(to - arena->mapped) << SLICE_SHIFT);
    if (done != VM_EXTENDED)
        return done;
    bind(arena, arena->mapped, to);
    huge_mapped(arena, arena->mapped, to);
    write_once(mapped, mapped + to - arena->mapped);
    arena->mapped = to;
    return done;
}

/*
 * Whether so many slices could be committed. A span is mapped only then, because the system holds back a part of what
 * the process has mapped (vm.user_reserve_kbytes), committed or not. Short spans are not worth the check.
 */
static noinline_cold bool may_commit(uint32_t slices)
{
    if (slices < WHOLE_FROM || vm_grants((size_t)slices << SLICE_SHIFT))
        return true;
    note_refused();
    return false;
}

/* Maps up to `to` and a step beyond; when that is refused or another mapping is in the way, up to `to` only. */
static enum vm_extent map_some(struct arena *arena, uint32_t to)
{
    if (likely(to <= arena->mapped))
        return VM_EXTENDED;
    if (unlikely(vm_staged) && !may_commit(to - arena->mapped))
        return VM_REFUSED;
    bool locked = atomic_load_explicit(&space.locked, memory_order_relaxed);
    uint32_t step = used(arena) / (unlikely(locked) ? LOCKED_PART : 4);
    step = step < STEP_LEAST && !locked ? STEP_LEAST : step > STEP_MOST ? STEP_MOST : step;
    uint64_t more = (uint64_t)to + step;
    if (more > arena->start + WHOLE_FROM && !locked)
        more = round_up(more, HUGE_PAGE_SLICES);
    more = more < arena->end ? more : arena->end;
    enum vm_extent done = map_to(arena, (uint32_t)more);
    return done == VM_REFUSED || (done == VM_TAKEN && more > to) ? map_to(arena, to) : done;
}

bool arena_move_frontier(struct arena *arena, uint32_t frontier)
{
    if (!extent_reach(arena, frontier) || map_some(arena, frontier) != VM_EXTENDED)
        return false;
    set_frontier(arena, frontier);
    return true;
}

/*
 * Turns what can be mapped of the rest of an extent into a free span and gives up the remainder. Where another
 * mapping lies in the rest, halves of it are tried.
 */
static void leave_extent(struct arena *arena)
{
    uint32_t from = arena->frontier;
    if (unlikely(guard_on) && arena->slabs) /* spans must not cross guards */
        return;
    bool locked = atomic_load_explicit(&space.locked, memory_order_relaxed);
    for (uint32_t rest = locked ? 0 : arena->end - arena->mapped; rest && arena->mapped < arena->end; rest /= 2)
        if (rest <= arena->end - arena->mapped && map_to(arena, arena->mapped + rest) == VM_REFUSED)
            break;
    set_frontier(arena, arena->mapped);
    if (arena->mapped > from)
        arena_insert(arena, from, arena->mapped - from, clock_ms());
}

/*
 * Where a new extent of `slices` may begin, given that `hop` is 0 unless a foreign mapping was met; space.slice_most
 * when there is no such place. The chunk in which it begins may have other mappings below it.
 */
static uint64_t place_of_extent(uint64_t slices, uint32_t hop)
{
    if (likely(!hop))
        return dealt;
    uintptr_t end = (uintptr_t)slice_address(space.slice_most);
    uintptr_t at = slices < space.slice_most ? hole_from((uintptr_t)slice_address(dealt), end, slices << SLICE_SHIFT,
                                                         SLICE_SIZE << HUGE_PAGE_SHIFT)
                                             : 0;
    if (at == HOLE_UNKNOWN)
        return round_up((uint64_t)dealt + hop, 1u << space.chunk_shift);
    return at ? slice_of((void *)at) : space.slice_most;
}

/* Begins a new extent of at least `slices`. */
static bool next_extent(struct arena *arena, uint64_t slices, uint32_t hop)
{
    uint64_t start = place_of_extent(slices, hop);
    uint32_t end = deal(arena, start, slices);
    if (!end)
        return false;
    if (arena->end)
        leave_extent(arena);
    arena->passed = used(arena);
    arena->start = arena->frontier = arena->mapped = arena->reached = (uint32_t)start;
    arena->end = end;
    return true;
}

/* The length of the free span that ends at the frontier, within this extent. */
static uint32_t free_at_frontier(const struct arena *arena)
{
    return arena->frontier > arena->start ? free_below(arena, arena->frontier) : 0;
}

/* The first slice at or above `slice` whose address is a multiple of `align` slices. */
static uint64_t aligned(uint64_t slice, uint32_t align)
{
    uint64_t first = space.region >> SLICE_SHIFT;
    return round_up(first + slice, align) - first;
}

/*
 * Makes room for `slices` aligned slices at the frontier: in this extent, which is extended if possible, or in a
 * new one. When a foreign mapping is in the way, the new one begins in the next hole that is large enough. To find
 * it, all mappings of the process are read, and that is in vain while other mappings lie where the region or its
 * tables should grow. So more and more requests are refused at once. They are served outside the region.
 */
static bool make_room(struct arena *arena, uint32_t slices, uint32_t align)
{
    uint32_t hop = no_room.taken.failures ? HOP_FIRST : 0;
    for (int tries = 0; tries < HOPS; tries++) {
        uint64_t to = aligned(arena->frontier - free_at_frontier(arena), align) + slices;
        if (to > arena->mapped && slices >= no_room.less && taken_still(&no_room.taken))
            return false;
        if (extent_reach(arena, to)) {
            enum vm_extent done = map_some(arena, (uint32_t)to);
            if (done != VM_TAKEN) {
                taken_note(&no_room.taken, false);
                return done == VM_EXTENDED;
            }
            arena->end = arena->mapped; /* the extent ends before the foreign mapping */
            hop = hop ? 2 * hop : HOP_FIRST;
        }
        if (!next_extent(arena, (uint64_t)slices + align - 1, hop))
            break;
    }
    if (hop) {
        no_room.less = slices;
        taken_note(&no_room.taken, true);
    }
    return false;
}

void arena_init(struct arena *arena, unsigned index, bool slabs, unsigned node)
{
    arena->index = (uint8_t)index; /* the rest is zero, and is not touched */
    arena->slabs = slabs;
    arena->node = (uint8_t)node;
    if (index)
        return;
    arena->end = deal(arena, 0, space.slices_start);
    arena->mapped = mapped = space.slices_start;
    bind(arena, 0, space.slices_start);
}

void arena_trim(struct arena *arena)
{
    uint32_t end = arena->frontier, length = free_at_frontier(arena);
    uint32_t from = (uint32_t)round_up(dirty_end(end - length, length), HUGE_PAGE_SLICES);
    /* Validation of debugged objects reads them without a lock, so they must stay mapped. */
    if (from + TRIM_LEAST > end || unlikely(guard_on) || unlikely(space.shadow.mapped != 0))
        return;
    if (!vm_unmap(slice_address(from), (size_t)(arena->mapped - from) << SLICE_SHIFT))
        return;
    uint32_t span = end - length, stamp = slice_at(span)->stamp;
    arena_unlink(arena, span);
    no_room.taken = (struct space_taken){0};
    if (arena->slabs)
        huge_unmapped(from, arena->mapped);
    write_once(mapped, mapped - (arena->mapped - from));
    arena->mapped = arena->frontier = from;
    if (from > span) {
        slice_at(span)->stamp = stamp;
        span_link(arena, span, from - span);
    }
}

void arena_slim(struct arena *arena)
{
    if (arena->mapped == arena->frontier || space.shadow.mapped ||
        !vm_unmap(slice_address(arena->frontier), (size_t)(arena->mapped - arena->frontier) << SLICE_SHIFT))
        return;
    if (arena->slabs)
        huge_unmapped(arena->frontier, arena->mapped);
    write_once(mapped, mapped - (arena->mapped - arena->frontier));
    arena->mapped = arena->frontier;
}

/* ---- staged memory ---- */

noinline_cold bool arena_commit_staged(uint32_t slice, uint32_t slices)
{
    if (vm_commit(slice_address(slice), (size_t)slices << SLICE_SHIFT))
        return true;
    note_refused();
    /* Part of it may be committed. Dirty slices were so before; they are uncommitted when they are returned. */
    for (uint32_t from = slice, to; from < slice + slices; from = to) {
        bool clean = region_slice_clean(from);
        for (to = from + 1; to < slice + slices && region_slice_clean(to) == clean; to++) {
        }
        if (clean)
            arena_uncommit(from, to);
    }
    return false;
}

noinline_cold bool arena_uncommit(uint32_t from, uint32_t to)
{
    bool done = vm_uncommit(slice_address(from), (size_t)(to - from) << SLICE_SHIFT);
    bind(arena_of(from), from, to); /* the memory may be a new mapping */
    return done;
}

/* ---- taking ---- */

/*
 * Where groups of slabs are guarded, no span crosses a guard. If the span does not fit below the next guard, the
 * slices below it are freed and the frontier moves behind it. Returns false when the span is too long for a group,
 * must be aligned, or finds no room.
 */
static bool pass_guard(struct arena *arena, uint32_t slices, uint32_t align)
{
    if (slices >= GUARD_GROUP || align > 1 || !make_room(arena, slices, 1))
        return false;
    uint32_t start = arena->frontier, guard = guard_from(start);
    if (start + slices <= guard)
        return true;
    if (!make_room(arena, guard + 1 - start + slices, 1))
        return false;
    if (arena->frontier != start) /* a new extent, which starts with a group */
        return true;
    set_frontier(arena, guard + 1);
    slice_at(guard)->length = 1;
    slice_at(guard)->kind = SLICE_GUARD;
    if (guard > start)
        arena_insert(arena, start, guard - start, clock_ms());
    return true;
}

uint32_t arena_take_frontier(struct arena *arena, uint32_t slices, uint32_t align)
{
    if (unlikely(guard_on) && arena->slabs && !pass_guard(arena, slices, align))
        return SLICE_NONE;
    if (!make_room(arena, slices, align))
        return SLICE_NONE;
    uint32_t start = arena->frontier, below = free_at_frontier(arena);
    uint32_t at = (uint32_t)aligned(start - below, align);
    if (below)
        arena_unlink(arena, start - below);
    set_frontier(arena, at + slices);
    if (at > start - below) {
        slice_at(start - below)->stamp = clock_ms();
        span_link(arena, start - below, at - (start - below));
    }
    return at;
}

/*
 * Among the spans freed last, one that starts with so many dirty slices. Such slices are still committed: they cost
 * no system call, and are available even where the system refuses to commit more.
 */
#define SCAN_MOST 16 /* spans */
static noinline_cold uint32_t find_committed(const struct arena *arena, uint32_t slices)
{
    uint32_t span = arena->newest - 1;
    for (int i = 0; i < SCAN_MOST && span != SLICE_NONE; i++, span = slice_at(span)->age_prev)
        if (slice_at(span)->length >= slices && dirty_count(span, span + slices) == slices)
            return span;
    return SLICE_NONE;
}

uint32_t arena_take_free(struct arena *arena, uint32_t slices, uint32_t align)
{
    uint64_t want = (uint64_t)slices + align - 1;
    uint32_t span = unlikely(vm_staged) && want < UINT32_MAX ? find_committed(arena, (uint32_t)want) : SLICE_NONE;
    if (span == SLICE_NONE && want < UINT32_MAX)
        span = bins_find(&arena->bins, (uint32_t)want);
    if (span == SLICE_NONE)
        return SLICE_NONE;
    uint32_t length = slice_at(span)->length;
    uint32_t stamp = slice_at(span)->stamp;
    arena_unlink(arena, span);
    uint32_t at = (uint32_t)aligned(span, align);
    if (at > span)
        arena_insert(arena, span, at - span, stamp);
    if (span + length > at + slices)
        arena_insert(arena, at + slices, span + length - at - slices, stamp);
    return at;
}
