#include "front/malloc/large.h"
#include "front/malloc/large_debug.h"
#include "cache/kmem_cache.h"
#include "cache/misuse.h"
#include "diagnostics/feature/quarantine.h"
#include "cache/slot/span_cache.h"
#include "front/malloc/guarded.h"
#include "platform/os/vm.h"
#include "memory/region/guard.h"
#include "memory/space/mapped.h"
#include "cache/decay.h"
#include "process/decay.h"
#include "diagnostics/profile/profile.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define REMAP_SLICES 16            /* from 1 MiB up, moving pages is cheaper than copying them */
#define ZERO_MOST    (128ul << 20) /* larger blocks get fresh pages rather than zeroed ones */

size_t large_threshold = SIZE_MAX;

static bool slices_for(size_t n, uint32_t *slices)
{
    if (n > PTRDIFF_MAX)
        return false;
    size_t u = (n + SLICE_SIZE - 1) >> SLICE_SHIFT;
    *slices = (uint32_t)u;
    return u < space.slice_most;
}

static void zero_dirty(uint32_t slice, size_t n)
{
    char *at = slice_address(slice);
    if (sheaf_config.harden.zero_alloc) /* including what the last page or slice has beyond n */
        n = large_size(at);
    if (n > ZERO_MOST && vm_discard(at, n & ~(space.page_size - 1))) {
        memset(at + (n & ~(space.page_size - 1)), 0, n & (space.page_size - 1));
        return;
    }
    for (size_t done = 0; done < n; done += SLICE_SIZE, slice++) {
        size_t part = n - done < SLICE_SIZE ? n - done : SLICE_SIZE;
        if (!region_slice_clean(slice))
            memset(at + done, 0, part);
    }
}

/* Allocates a span in the region; NULL when the region has no room. */
static void *plain_span(size_t n, size_t align, bool zero)
{
    uint32_t slices, align_slices = align > SLICE_SIZE ? (uint32_t)(align >> SLICE_SHIFT) : 1;
    bool zeroed;
    if (!slices_for(n, &slices) || align >> SLICE_SHIFT >= space.slice_most)
        return NULL;
    uint32_t slice = align <= SLICE_SIZE ? span_cache_take(slices) : SLICE_NONE;
    if (slice != SLICE_NONE)
        return zero ? memset(slice_address(slice), 0, n) : slice_address(slice);
    slice = region_alloc(ARENA_LARGE, slices, align_slices, &zeroed);
    if (slice == SLICE_NONE)
        return NULL;
    void *p = slice_address(slice);
    keep_visible(p);
    if (zero && !zeroed)
        zero_dirty(slice, n);
    cache_publish(NULL);
    keep_visible(p);
    return p;
}

static void *guarded_span(size_t n, size_t align, bool zero)
{
    bool zeroed;
    void *p = guarded_alloc(n, align, &zeroed);
    if (p && zero && !zeroed)
        zero_dirty((uint32_t)slice_of(p), n);
    return p;
}

static void *mapped_block(size_t n, size_t align)
{
    void *p = mapped_alloc(n, align);
    cache_publish(NULL);
    return p;
}

/* Whether trimming could make room for n bytes: not if n exceeds everything outside large blocks. */
static bool worth_trimming(size_t n)
{
    return n >> SLICE_SHIFT <= read_once(region_stats.slab_slices) + read_once(region_stats.warm_slices);
}

/*
 * When neither the region nor the system has room, cached memory is returned to the system, and the region is
 * tried once more.
 */
void *large_plain_alloc(size_t n, size_t align, bool zero)
{
    uint32_t slices;
    if (n > PTRDIFF_MAX || align > PTRDIFF_MAX)
        return NULL;
    n += !n; /* a request for 0 bytes also gets a block of its own */
    zero |= sheaf_config.harden.zero_alloc;
    cache_decay(slot_current());
    void *p = sheaf_config.harden.guard        ? guarded_span(n, align, zero)
              : unlikely(n >= large_threshold) ? mapped_block(n, align)
                                               : NULL;
    if (!p)
        p = plain_span(n, align, zero);
    if (!p)
        p = mapped_block(n, align);
    return p || !slices_for(n, &slices) || !worth_trimming(n) || !cache_trim_all() ? p : plain_span(n, align, zero);
}

static void release(void *p)
{
    uint32_t slice = (uint32_t)slice_of(p);
    if (slice_at(slice)->guarded)
        slice = guarded_open(slice);
    else if (sheaf_config.harden.quarantine && !vm_reopen(p, (size_t)slice_at(slice)->length << SLICE_SHIFT))
        slice = SLICE_NONE;
    if (slice != SLICE_NONE) /* otherwise it stays closed and allocated */
        region_free(slice);
}

/* Releases a block that leaves the quarantine. */
static void release_waiting(void *p)
{
    if (!slice_at(slice_of(p))->guarded)
        guard_drop();
    release(p);
}

/* Whether the block may enter the quarantine. A guarded block already counts as a closed piece. */
static bool may_wait(const void *p, size_t open)
{
    return quarantine_takes(open) && (slice_at(slice_of(p))->guarded || guard_claim());
}

/* Wipes the block before it can be reused. Returning pages to the system is cheaper than zeroing them. */
static void forget_contents(char *p, size_t from, size_t to)
{
    if (to > from && !vm_discard(p + from, to - from))
        memset(p + from, 0, to - from);
}

static noinline_cold void free_hardened(void *p)
{
    size_t open = slice_at(slice_of(p))->guarded ? guarded_size(slice_at(slice_of(p)))
                                                 : (size_t)slice_at(slice_of(p))->length << SLICE_SHIFT;
    bool waits = may_wait(p, open);
    if (waits || sheaf_config.harden.zero_free)
        forget_contents(p, 0, open);
    if (waits && vm_close(p, open))
        quarantine_large(p, (size_t)slice_at(slice_of(p))->length << SLICE_SHIFT, release_waiting);
    else if (waits)
        release_waiting(p);
    else
        release(p);
}

void *large_alloc(size_t n, size_t align, bool zero)
{
    if (unlikely(large_debug))
        return large_debug_alloc(n, align, zero);
    void *p = large_plain_alloc(n, align, zero);
    if (unlikely(read_once(profile_on)) && p)
        profile_large(p, n);
    return p;
}

/* Between two threads that free the same block, the exchange decides. */
void large_plain_free(void *p)
{
    uintptr_t slice = slice_of(p);
    uint8_t live = SLICE_LARGE;
    if (unlikely((uintptr_t)p & (SLICE_SIZE - 1)) ||
        unlikely(!__atomic_compare_exchange_n(&slice_at(slice)->kind, &live, SLICE_CLOSED, false, __ATOMIC_ACQ_REL,
                                              __ATOMIC_RELAXED))) {
        large_warn("free of", p);
        return;
    }
    cache_decay(slot_current());
    if (unlikely(slice_at(slice)->sampled))
        profile_large_freed(p);
    if (unlikely(sheaf_config.harden.large))
        free_hardened(p);
    else if (span_cache_put((uint32_t)slice))
        return;
    else
        region_free((uint32_t)slice);
    cache_publish(NULL);
}

void large_free(void *p)
{
    if (unlikely(large_debug) && !large_debug_free(p))
        return;
    large_plain_free(p);
}

static size_t large_room(const void *p)
{
    uintptr_t slice = slice_of(p);
    if (((uintptr_t)p & (SLICE_SIZE - 1)) || read_once(slice_at(slice)->kind) != SLICE_LARGE)
        return 0;
    if (unlikely(slice_at(slice)->guarded))
        return guarded_size(slice_at(slice));
    return (size_t)slice_at(slice)->length << SLICE_SHIFT;
}

struct large_totals large_totals(void)
{
    struct span_cache_totals cached = span_cache_totals();
    uint64_t slices = read_once(region_stats.large_slices) - cached.slices - atomic_load(&guarded_slices);
    return (struct large_totals){
        .bytes = (slices << SLICE_SHIFT) - atomic_load(&quarantine_large_bytes),
        .blocks = read_once(region_stats.large_blocks) - cached.spans - atomic_load(&quarantine_large_blocks),
        .allocs = read_once(region_stats.large_alloc) + cached.taken,
        .frees = read_once(region_stats.large_free) + cached.taken + cached.spans,
        .warm_bytes = (read_once(region_stats.warm_slices) + cached.slices) << SLICE_SHIFT,
        .span_cache_bytes = cached.slices << SLICE_SHIFT,
    };
}

size_t large_size(const void *p)
{
    size_t room = large_room(p);
    return unlikely(large_debug) && room ? large_debug_size(p, room) : room;
}

/* A block that grows will often grow again, so a quarter is added, which costs no memory until it is touched. */
static void *grow_moving(void *p, size_t old, size_t n)
{
    uint32_t have = (uint32_t)(old >> SLICE_SHIFT);
    char *to = large_plain_alloc(n + n / 4, 1, false);
    if (!to)
        to = large_plain_alloc(n, 1, false);
    if (!to)
        return NULL;
    enum vm_moved moved = have >= REMAP_SLICES && in_region(to) ? vm_move(p, to, old) : VM_MOVE_REFUSED;
    if (moved == VM_MOVE_LOST)
        return NULL; /* the slices at `to` stay allocated forever: nothing is mapped there */
    if (moved == VM_MOVED)
        __atomic_fetch_add(&region_stats.large_remap, 1, __ATOMIC_RELAXED);
    else
        memcpy(to, p, old);
    large_plain_free(p);
    return to;
}

/*
 * Guards, and contents that must be zero, are kept by moving the block instead of growing into the following
 * slices.
 */
static noinline_cold void *resize_hardened(char *p, size_t old, size_t n)
{
    const struct slice *block = slice_at(slice_of(p));
    bool zero = sheaf_config.harden.zero_alloc || sheaf_config.harden.zero_free;
    if (!block->guarded && n <= old && n > old / 2)
        return p;
    if (block->guarded && n < old && zero)
        forget_contents(p, round_up(n, space.page_size), old);
    if (block->guarded && guarded_resize((uint32_t)slice_of(p), n)) {
        if (n > old && zero)
            memset(p + old, 0, guarded_size(block) - old);
        return p;
    }
    void *to = large_plain_alloc(n, 1, false);
    if (to) {
        memcpy(to, p, old < n ? old : n);
        large_plain_free(p);
    }
    return to;
}

void *large_plain_resize(void *p, size_t n)
{
    uint32_t slices;
    size_t old = large_room(p);
    if (unlikely(sheaf_config.harden.large))
        return resize_hardened(p, old, n);
    if (!slices_for(n, &slices))
        return n > PTRDIFF_MAX ? NULL : grow_moving(p, old, n);
    if (!slices)
        slices = 1;
    uint32_t have = (uint32_t)(old >> SLICE_SHIFT);
    /* Shrinking keeps the room that growing added, unless it is worth returning. */
    if (slices == have || (slices < have && have - slices < 2 + slices / 4))
        return p;
    if (region_resize((uint32_t)slice_of(p), slices)) {
        cache_publish(NULL);
        return p;
    }
    return slices < have ? p : grow_moving(p, old, n);
}

/* A block that stays where it is counts as freed and allocated anew, as one that moves does. */
void *large_resize(void *p, size_t n)
{
    if (unlikely(large_debug))
        return large_debug_resize(p, n);
    void *to = large_plain_resize(p, n);
    if (unlikely(to == p && slice_at(slice_of(p))->sampled))
        profile_large_freed(p);
    if (unlikely(read_once(profile_on)) && to)
        profile_large(to, n);
    return to;
}

/*
 * Finds the span that the slice belongs to. Returns the kind of misuse, or NULL for a double free. Slow, and usually
 * the last thing that the process does.
 */
static const char *misuse_of(const void *p, const char **what)
{
    uintptr_t slice = slice_of(p);
    uintptr_t head = slice;
    while (slice_at(head)->kind == SLICE_INSIDE || slice_at(head)->kind == SLICE_TAIL) {
        if (!head)
            break;
        head--;
    }
    const struct slice *span = slice_at(head);
    bool within = span->length > slice - head;
    *what = within ? "large block" : "not from this allocator";
    if (!within && slice < region_end() && region_has(slice)) { /* the memory was unmapped at an arena's end */
        *what = slice_at(slice)->slab ? "memory of a released slab" : "memory returned to the system";
        return NULL;
    }
    if (within && span->kind == SLICE_LARGE)
        return "interior pointer";
    if (within && (span->kind == SLICE_FREE || span->kind == SLICE_CLOSED || span->kind == SLICE_BUSY)) {
        *what = slice_at(slice)->slab ? "memory of a released slab" : "large block";
        return NULL;
    }
    return "foreign pointer";
}

noinline_cold void large_warn(const char *call, const void *p)
{
    char text[64];
    const char *what;
    const char *kind = misuse_of(p, &what);
    if (kind) {
        strcpy(text, call);
        strcat(text, " ");
        strcat(text, kind);
    } else {
        strcpy(text, "double free of");
    }
    misuse_warn(text, p, what);
}

noinline_cold void large_report(const char *call, const void *p)
{
    large_warn(call, p);
    abort(); /* there is no result to return, even if debugging is to continue */
}
