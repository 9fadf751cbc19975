#include "diagnostics/leak/roots.h"
#include "platform/arch/arch.h"
#include "diagnostics/feature/guarded_pool.h"
#include "diagnostics/leak/memory.h"
#include "diagnostics/leak/sort.h"
#include "platform/os/vm.h"
#include "memory/region/region.h"
#include "memory/space/internal.h"
#include "memory/space/slice.h"

/* Ranges that are no roots. */
struct ranges {
    struct internal_range *all;
    size_t count, most;
};

static void leave_out(uintptr_t start, uintptr_t end, void *with)
{
    struct ranges *ranges = with;
    if (start < end && ranges->count < ranges->most)
        ranges->all[ranges->count++] = (struct internal_range){start, end};
}

/* ---- memory of the allocator, and blocks ---- */

static void leave_out_table(struct ranges *ranges, const struct space_table *table)
{
    uintptr_t start = (uintptr_t)table->start;
    size_t mapped = atomic_load(&table->mapped);
    if (table->down)
        leave_out(start - mapped, start, ranges);
    else
        leave_out(start, start + mapped, ranges);
}

static void leave_out_space(struct ranges *ranges)
{
    leave_out_table(ranges, &space.slabs);
    leave_out_table(ranges, &space.dirty_table);
    leave_out_table(ranges, &space.slices_table);
    leave_out_table(ranges, &space.counters_rest);
    leave_out_table(ranges, &space.ids_table);
    leave_out_table(ranges, &space.sheaves);
    leave_out_table(ranges, &space.shadow);
    leave_out(space.base, space.base + ((uintptr_t)space.slots << SLOT_SHIFT), ranges);
    leave_out((uintptr_t)space.mapped, space.region, ranges); /* the bootstrap tables follows */
}

/* Spans of the region, whatever they hold. Between them there may be mappings of the program. */
static void leave_out_region(struct ranges *ranges)
{
    uint32_t end = region_end(), start = 0, slice = 0;
    while (slice < end) {
        const struct slice *span = slice_at(slice);
        uint8_t kind = read_once(span->kind);
        uint32_t length = kind == SLICE_INSIDE || kind == SLICE_TAIL ? 0 : read_once(span->length);
        if (length) {
            slice += length;
            continue;
        }
        leave_out((uintptr_t)slice_address(start), (uintptr_t)slice_address(slice), ranges);
        start = ++slice;
    }
    leave_out((uintptr_t)slice_address(start), (uintptr_t)slice_address(end), ranges);
}

static void leave_out_ours(struct ranges *ranges, const struct heap *heap)
{
    struct internal_range own[INTERNAL_MOST], data = own_data();
    unsigned n = internal_ranges(own, INTERNAL_MOST);
    for (unsigned i = 0; i < n; i++)
        leave_out(own[i].start, own[i].end, ranges);
    leave_out(data.start, data.end, ranges);
    leave_out(pool_start, pool_start + pool_bytes, ranges);
    leave_out_space(ranges);
    leave_out_region(ranges);
    for (uint32_t i = 0; i < heap->extra_count; i++)
        leave_out(heap->extras[i].block.start, heap->extras[i].block.start + heap->extras[i].block.size, ranges);
    leak_each_table(leave_out, ranges);
}

/* ---- stacks ---- */

/* A stack of libc's lies above a guard. In other mappings there may be data below the stack. */
static bool has_guard(const struct maps *maps, size_t i)
{
    return i && maps->all[i - 1].flags & MAP_CLOSED && maps->all[i - 1].end == maps->all[i].start;
}

static bool inside(const struct map *map, uintptr_t address)
{
    return address - map->start < map->end - map->start;
}

static void leave_out_unused(struct ranges *ranges, const struct maps *maps, const struct world_thread *thread)
{
    size_t i = maps_find(maps, thread->low);
    if (!thread->low || i == maps->count || !inside(&maps->all[i], thread->low))
        return;
    const struct map *map = &maps->all[i];
    bool of_thread = has_guard(maps, i) && inside(map, thread->pointer) && thread->pointer > thread->low;
    if (map->flags & MAP_MAIN_STACK || of_thread)
        leave_out(map->start, thread->low, ranges);
}

/* Frames of the scan itself, whatever stack it runs on. */
static void leave_out_scan(struct ranges *ranges, const struct maps *maps, uintptr_t low)
{
    enum { FRAMES = 16 << 10 }; /* bytes, more than the scan uses */
    size_t i = maps_find(maps, low);
    if (!low || i == maps->count || !inside(&maps->all[i], low))
        return;
    bool fits = low - maps->all[i].start > FRAMES;
    leave_out(fits ? low - FRAMES : maps->all[i].start, low, ranges);
}

#ifdef ARCH_CONTROL_BLOCK_SELF
/*
 * libc keeps the stacks of threads that have ended. Such a stack is a mapping above a guard, and contains a thread
 * control block: its first word and its third are its own address, and its sixth is the canary of all threads. Below
 * it lie thread-local data and the stack. The block itself holds the result of a thread that may yet be joined.
 */
struct ended {
    const struct world *world;
    uintptr_t block; /* the thread control block; 0: none */
    bool live;       /* a thread uses the mapping */
};

static void find_control_block(uintptr_t from, uintptr_t to, void *with)
{
    enum { SELF = 2, CANARY = 5, WORDS = 6, ALIGN = 64 };
    struct ended *ended = with;
    const uintptr_t *ours = __builtin_thread_pointer();
    for (uintptr_t at = round_up(from, ALIGN); at + WORDS * sizeof(at) <= to; at += ALIGN) {
        const uintptr_t *words = (const uintptr_t *)at;
        if (words[0] != at || words[SELF] != at || words[1] == at || words[CANARY] != ours[CANARY])
            continue;
        ended->live |= world_has(ended->world, at);
        ended->block = ended->block ? ended->block : at;
    }
}

static void leave_out_ended(struct ranges *ranges, struct maps *maps, const struct world *world)
{
    const uint32_t stack = MAP_READABLE | MAP_WRITABLE;
    for (size_t i = 0; i < maps->count; i++) {
        const struct map *map = &maps->all[i];
        struct ended ended = {.world = world};
        if (map->flags != stack || !has_guard(maps, i))
            continue;
        maps_each_present(maps, false, map->start, map->end, find_control_block, &ended);
        if (ended.block && !ended.live)
            leave_out(map->start, ended.block, ranges);
    }
}
#else
/* The control block has no mark by which it could be recognized. */
static void leave_out_ended(struct ranges *ranges, struct maps *maps, const struct world *world)
{
    (void)ranges, (void)maps, (void)world;
}
#endif

/* ---- the roots ---- */

static bool by_address(const void *a, const void *b)
{
    return ((const struct internal_range *)a)->start < ((const struct internal_range *)b)->start;
}

/* Without knowing which pages of a file were written to, its read-only mappings are left out: most are constants. */
static bool is_root(const struct maps *maps, uint32_t flags)
{
    if (!(flags & MAP_READABLE) || flags & (MAP_OF_DEVICE | MAP_OF_KERNEL))
        return false;
    if (flags & MAP_WRITABLE)
        return true;
    return !(flags & MAP_COMMON) && (!(flags & MAP_OF_FILE) || maps->pagemap >= 0);
}

/* What is present of memory without a file can be read; other memory may fault. */
static void mark_doubtful(uintptr_t from, uintptr_t to, void *with)
{
    struct mark *mark = with;
    maps_each_copied(mark->maps, from, to, mark_range, mark);
}

static void mark_root(struct mark *mark, uint32_t flags, uintptr_t from, uintptr_t to)
{
    bool certain = !(flags & (MAP_OF_FILE | MAP_COMMON)) && mark->maps->pagemap >= 0;
    maps_each_present(mark->maps, flags & MAP_COMMON, from, to, certain ? mark_range : mark_doubtful, mark);
    mark_reached(mark);
}

/* Marks the parts of the mapping that are in no range. *next is the first range that may concern it. */
static void mark_map(struct mark *mark, const struct map *map, const struct ranges *ranges, size_t *next)
{
    uintptr_t at = map->start;
    while (*next < ranges->count && ranges->all[*next].end <= at)
        ++*next;
    for (size_t i = *next; i < ranges->count && ranges->all[i].start < map->end; i++) {
        if (ranges->all[i].start > at)
            mark_root(mark, map->flags, at, ranges->all[i].start);
        at = ranges->all[i].end > at ? ranges->all[i].end : at;
        if (at >= map->end)
            return;
    }
    mark_root(mark, map->flags, at, map->end);
}

/* What a thread uses may lie in a block, such as a stack that the program has allocated. */
static void mark_thread(struct mark *mark, const struct world_thread *thread)
{
    mark_word(mark, thread->pointer);
    mark_word(mark, thread->low);
    mark_word(mark, thread->alternate);
    mark_range(thread->frame, thread->end, mark);
}

bool roots_mark(struct mark *mark, const struct world *world, bool forked)
{
    uint32_t threads = atomic_load(&world->count);
    struct ranges ranges = {.most = 256 + threads + mark->heap->extra_count + region_end() + mark->maps->count};
    ranges.all = leak_map(ranges.most * sizeof(*ranges.all));
    if (!ranges.all)
        return false;
    leave_out_ours(&ranges, mark->heap);
    leave_out((uintptr_t)world->threads, (uintptr_t)world->threads + world->bytes, &ranges);
    for (uint32_t i = 0; i < threads; i++)
        if (atomic_load(&world->threads[i].stopped))
            leave_out_unused(&ranges, mark->maps, &world->threads[i]);
    leave_out_scan(&ranges, mark->maps, world->threads[0].low);
    if (!forked && !world->running)
        leave_out_ended(&ranges, mark->maps, world);
    leak_sort(ranges.all, ranges.count, sizeof(*ranges.all), by_address);
    size_t next = 0;
    for (size_t i = 0; i < mark->maps->count; i++)
        if (is_root(mark->maps, mark->maps->all[i].flags))
            mark_map(mark, &mark->maps->all[i], &ranges, &next);
    for (uint32_t i = 0; i < threads; i++)
        if (atomic_load(&world->threads[i].stopped))
            mark_thread(mark, &world->threads[i]);
    mark_range((uintptr_t)world->words, (uintptr_t)(world->words + world->word_count), mark);
    mark_reached(mark);
    return true;
}
