#include "memory/region/purge.h"
#include "memory/space/locks.h"
#include "memory/region/arena.h"
#include "memory/region/dirty.h"
#include "memory/region/guard.h"
#include "memory/region/huge.h"
#include "memory/region/retain.h"
#include "platform/os/clock.h"
#include "platform/os/lock.h"
#include "platform/os/numa.h"
#include "platform/os/vm.h"

struct region_stats region_stats;

unsigned region_node(uint32_t slice)
{
    unsigned index = likely(numa.count == 1) ? 0 : arena_index(slice);
    return index >= ARENA_COUNT ? index - ARENA_COUNT + 1 : 0;
}

bool region_has(uintptr_t slice)
{
    return space.chunks[slice >> space.chunk_shift];
}

uint32_t region_slab_frontier(void)
{
    uint32_t most = 0;
    for (unsigned node = 0; node < numa.count; node++)
        most += read_once(slab_arena(node)->most);
    return most;
}

/* ---- allocation ---- */

static void count_resident(uint32_t slice, uint32_t slices)
{
    struct arena *arena = arena_of(slice);
    uint32_t dirty = dirty_count(slice, slice + slices);
    count_warm(arena, -(int64_t)dirty);
    enum arena_kind kind = kind_of(arena);
    region.debt[kind] += slices - dirty;
    bool last = slice >= arena->start; /* slices of earlier extents are all accounted */
    uint32_t before = !last ? slices : arena->reached > slice ? arena->reached - slice : 0;
    retain_took(&region.retain[kind], (before < slices ? before : slices) - dirty);
    if (last && arena->reached < slice + slices)
        arena->reached = slice + slices;
}

static void count_taken(uint32_t slice, uint32_t slices, enum arena_kind kind)
{
    count_resident(slice, slices);
    if (kind == ARENA_SLAB) {
        region_stats.slab_slices += slices;
        retain_peak(&region.retain[ARENA_SLAB], region_stats.slab_slices);
    } else {
        region_stats.large_slices += slices;
        region_stats.large_blocks++;
        region_stats.large_alloc++;
        retain_peak(&region.retain[ARENA_LARGE], region_stats.large_slices);
    }
}

static uint32_t take_in(struct arena *arena, uint32_t slices, uint32_t align)
{
    uint32_t slice = arena_take_free(arena, slices, align);
    return slice != SLICE_NONE ? slice : arena_take_frontier(arena, slices, align);
}

/* Returns the slice, or SLICE_NONE with the span free again if it cannot be committed. */
static uint32_t commit_taken(uint32_t slice, uint32_t slices)
{
    if (arena_commit(slice, slices))
        return slice;
    arena_insert(arena_of(slice), slice, slices, clock_ms());
    return SLICE_NONE;
}

/*
 * The other arenas are the last resort: kinds are separated for order, not for safety. Arenas of other nodes come
 * first: where a node's part of the address space is used up, its memory nearly is as well.
 */
static uint32_t take(enum arena_kind kind, unsigned node, uint32_t slices, uint32_t align)
{
    uint32_t slice = SLICE_NONE;
    if (kind == ARENA_LARGE)
        slice = take_in(&region.arenas[ARENA_LARGE], slices, align);
    for (unsigned i = 0; i < numa.count && slice == SLICE_NONE; i++)
        slice = take_in(slab_arena((node + i) % numa.count), slices, align);
    if (slice == SLICE_NONE && kind == ARENA_SLAB)
        slice = take_in(&region.arenas[ARENA_LARGE], slices, align);
    return slice;
}

static void free_locked(uint32_t slice);

void region_refused(void)
{
    note_refused();
}

void region_collect(void)
{
    if (unlikely(atomic_load_explicit(&region.refused, memory_order_relaxed)) &&
        atomic_exchange(&region.refused, false)) {
        retain_little(&region.retain[ARENA_SLAB]);
        retain_little(&region.retain[ARENA_LARGE]);
    }
    if (unlikely(atomic_load_explicit(&region.aside_slabs, memory_order_relaxed)))
        region_stats.slab_slices += atomic_exchange(&region.aside_slabs, 0);
    if (unlikely(atomic_load_explicit(&region.aside_large, memory_order_relaxed))) {
        uint32_t n = atomic_exchange(&region.aside_large, 0);
        region_stats.large_slices += n;
        region_stats.large_blocks += n;
        region_stats.large_alloc += n;
    }
    if (likely(!atomic_load_explicit(&region.put_aside, memory_order_relaxed)))
        return;
    uint32_t next = atomic_exchange(&region.put_aside, 0);
    while (next) {
        uint32_t slice = next - 1;
        next = slice_at(slice)->bin_next;
        free_locked(slice);
    }
}

/* Locked slices take memory, and little is left of a small limit. */
static void refill_reserve(void)
{
    for (int i = 0; i < (atomic_load(&space.locked) ? 1 : RESERVE_SLICES); i++) {
        if (atomic_load_explicit(&region.reserve[i], memory_order_relaxed))
            continue;
        uint32_t slice = arena_take_frontier(&region.arenas[ARENA_SLAB], 1, 1);
        if (slice == SLICE_NONE)
            return;
        count_warm(&region.arenas[ARENA_SLAB], -(int64_t)dirty_count(slice, slice + 1));
        atomic_store(&region.reserve[i], slice + 1);
    }
}

static uint32_t take_reserve(enum arena_kind kind, uint32_t slices, uint32_t align)
{
    if (slices != 1 || align != 1)
        return SLICE_NONE;
    for (int i = 0; i < RESERVE_SLICES; i++) {
        uint32_t slice = atomic_exchange(&region.reserve[i], 0);
        if (!slice)
            continue;
        slice--;
        if (kind == ARENA_LARGE && !arena_commit(slice, 1)) {
            atomic_store(&region.reserve[i], slice + 1); /* nothing fills it meanwhile: this thread holds the lock */
            return SLICE_NONE;
        }
        slice_at(slice)->length = 1;
        slice_at(slice)->kind = kind == ARENA_SLAB ? SLICE_SLAB : SLICE_LARGE;
        __atomic_fetch_add(&region_stats.reserve_slices, 1, __ATOMIC_RELAXED);
        atomic_fetch_add(kind == ARENA_SLAB ? &region.aside_slabs : &region.aside_large, 1);
        return slice;
    }
    return SLICE_NONE;
}

struct request {
    enum arena_kind kind;
    unsigned node; /* of a slab */
    uint32_t slices, align;
    bool in_parts; /* the caller commits what it uses of the span */
};

static uint32_t alloc_locked(struct request want, bool *zeroed)
{
    uint32_t slice = take(want.kind, want.node, want.slices, want.align);
    if (slice != SLICE_NONE && !want.in_parts)
        slice = commit_taken(slice, want.slices);
    if (slice == SLICE_NONE)
        return SLICE_NONE;
    slice_at(slice)->length = want.slices;
    slice_at(slice)->kind = want.kind == ARENA_SLAB ? SLICE_SLAB : SLICE_LARGE;
    *zeroed = dirty_count(slice, slice + want.slices) == 0;
    count_taken(slice, want.slices, want.kind);
    return slice;
}

/* What calls it, and what it calls: docs/cold-path.md, "The call tree of malloc". */
static uint32_t alloc(struct request want, bool *zeroed)
{
    *zeroed = false;
    if (!lock_acquire(lock_of(LOCK_REGION)))
        return take_reserve(want.kind, want.slices, want.align);
    region_collect();
    if (unlikely(!atomic_load_explicit(&region.reserve[0], memory_order_relaxed)))
        refill_reserve();
    uint32_t slice = alloc_locked(want, zeroed);
    void *address = slice_address(slice);
    keep_visible(address);
    const struct arena *arena = slab_arena(want.node);
    huge_grown(region_stats.slab_slices, arena);
    uint32_t start = arena->start, frontier = arena->frontier;
    struct debt debt = purge_take_debt(want.kind);
    lock_release(lock_of(LOCK_REGION));
    if (*zeroed)
        huge_touch(slice, want.slices);
    if (unlikely(guard_on))
        guard_close(want.node, start, frontier);
    if (unlikely(debt.slices))
        purge_old(debt);
    keep_visible(address);
    return slice;
}

uint32_t region_alloc(enum arena_kind kind, uint32_t slices, uint32_t align, bool *zeroed)
{
    return alloc((struct request){.kind = kind, .slices = slices, .align = align}, zeroed);
}

uint32_t region_alloc_parts(uint32_t slices, uint32_t align, bool *zeroed)
{
    return alloc((struct request){.kind = ARENA_LARGE, .slices = slices, .align = align, .in_parts = true}, zeroed);
}

uint32_t region_alloc_slab(unsigned node, uint32_t slices, bool *zeroed)
{
    return alloc((struct request){.kind = ARENA_SLAB, .node = node, .slices = slices, .align = 1, .in_parts = true},
                 zeroed);
}

/* ---- freeing ---- */

static void free_locked(uint32_t slice)
{
    struct slice *span = slice_at(slice);
    uint32_t length = span->length, now = clock_ms();
    if (span->kind == SLICE_SLAB) {
        region_stats.slab_slices -= length;
    } else {
        region_stats.large_slices -= length;
        region_stats.large_blocks--;
        region_stats.large_free++;
    }
    span->kind = SLICE_INSIDE;
    dirty_change(slice, slice + length, true);
    count_warm(arena_of(slice), length);
    arena_insert(arena_of(slice), slice, length, now);
    retain_age(&region.retain[ARENA_SLAB], region_stats.slab_slices, warm_of(ARENA_SLAB), now);
    retain_age(&region.retain[ARENA_LARGE], region_stats.large_slices, warm_of(ARENA_LARGE), now);
}

/* What calls it, and what it calls: docs/cold-path.md, "The call tree of free". */
void region_free(uint32_t slice)
{
    if (!lock_acquire(lock_of(LOCK_REGION))) {
        uint32_t head = atomic_load(&region.put_aside);
        do {
            slice_at(slice)->bin_next = head;
        } while (!atomic_compare_exchange_weak(&region.put_aside, &head, slice + 1));
        return;
    }
    region_collect();
    free_locked(slice);
    enum arena_kind kind = kind_of(arena_of(slice));
    uint64_t limit = purge_limit(kind);
    bool too_much = purge_due(kind, limit);
    lock_release(lock_of(LOCK_REGION));
    if (unlikely(too_much))
        purge_surplus(kind, limit);
}

static bool grow_locked(uint32_t slice, uint32_t slices)
{
    struct slice *span = slice_at(slice);
    struct arena *arena = arena_of(slice);
    uint32_t end = slice + span->length;
    uint32_t more = slices - span->length;
    uint32_t have = 0, stamp = 0; /* of the free span that follows */
    if (end < space.slice_count && slice_at(end)->kind == SLICE_FREE && arena_of(end) == arena) {
        have = slice_at(end)->length;
        stamp = slice_at(end)->stamp;
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
    region_stats.large_slices += more;
    retain_peak(&region.retain[ARENA_LARGE], region_stats.large_slices);
    span->length = slices;
    return true;
}

bool region_resize(uint32_t slice, uint32_t slices)
{
    if (!lock_acquire(lock_of(LOCK_REGION)))
        return false;
    struct slice *span = slice_at(slice);
    bool done = true, too_much = false;
    uint64_t limit = 0;
    if (slices > span->length) {
        done = grow_locked(slice, slices);
    } else if (slices < span->length) {
        uint32_t rest = span->length - slices;
        span->length = slices;
        region_stats.large_slices -= rest;
        count_warm(arena_of(slice), rest);
        dirty_change(slice + slices, slice + slices + rest, true);
        arena_insert(arena_of(slice), slice + slices, rest, clock_ms());
        limit = purge_limit(kind_of(arena_of(slice)));
        too_much = purge_due(kind_of(arena_of(slice)), limit);
    }
    struct debt debt = purge_take_debt(ARENA_LARGE);
    lock_release(lock_of(LOCK_REGION));
    if (unlikely(debt.slices))
        purge_old(debt);
    if (unlikely(too_much))
        purge_surplus(kind_of(arena_of(slice)), limit);
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
    uint64_t slices = bytes >> SLICE_SHIFT;
    retain_init(&region.retain[ARENA_SLAB], slices, KEEP_OF_SLABS);
    retain_init(&region.retain[ARENA_LARGE], slices, KEEP_OF_LARGE);
    region.floor = chosen ? slices : 0;
}

void region_retain(size_t bytes, bool chosen)
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

bool region_retains_learned(void)
{
    const struct retain *keep = &region.retain[ARENA_SLAB];
    return read_once(keep->now) != read_once(keep->least);
}

bool region_slim(unsigned slots)
{
    if (!lock_acquire(lock_of(LOCK_REGION)))
        return false;
    for (int i = 1; i < RESERVE_SLICES; i++) {
        uint32_t slice = atomic_exchange(&region.reserve[i], 0);
        if (slice)
            arena_insert(arena_of(slice - 1), slice - 1, 1, clock_ms());
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
