#include "diagnostics/leak/mark.h"
#include "diagnostics/leak/memory.h"
#include "memory/space/space.h"

#define WORD         sizeof(uintptr_t)
#define SPARSE_BYTES (64ul << 10) /* from this size on, pages that were never touched are left out */

static bool heap_has_holes(const struct heap *heap, const struct maps *maps)
{
    uintptr_t from = space.region, to = from + ((uintptr_t)heap->slices << SLICE_SHIFT);
    for (size_t i = maps_find(maps, from); i < maps->count && maps->all[i].start < to; i++)
        if (!(maps->all[i].flags & MAP_READABLE))
            return true;
    return heap->extra_count;
}

bool mark_begin(struct mark *mark, struct heap *heap, struct maps *maps)
{
    *mark = (struct mark){.heap = heap, .maps = maps, .found = BLOCK_REACHED, .most = heap->live};
    mark->stack = leak_map(heap->live * sizeof(*mark->stack));
    mark->list = leak_map(heap->live * sizeof(*mark->list));
    mark->with = leak_map(heap->blocks * sizeof(*mark->with));
    mark->holes = heap_has_holes(heap, maps);
    return mark->stack && mark->list && mark->with;
}

static void push(struct mark *mark, struct block block)
{
    sheaf_assert(mark->depth < mark->most);
    mark->stack[mark->depth++] = block;
}

void mark_word(struct mark *mark, uintptr_t word)
{
    struct block block;
    uint32_t number = heap_find(mark->heap, word, &block);
    if (likely(number == HEAP_NONE) || mark->heap->state[number] != BLOCK_LIVE)
        return;
    mark->heap->state[number] = mark->found;
    if (mark->leader) {
        mark->leader->blocks++;
        mark->leader->bytes += block.size;
    }
    push(mark, block);
}

void mark_range(uintptr_t from, uintptr_t to, void *mark)
{
    for (uintptr_t at = round_up(from, WORD); at + WORD <= to; at += WORD)
        mark_word(mark, read_once(*(const uintptr_t *)at));
}

/* The pages of a large range that may hold data. */
static void mark_present(uintptr_t from, uintptr_t to, void *with)
{
    struct mark *mark = with;
    if (to - from >= SPARSE_BYTES)
        maps_each_present(mark->maps, false, from, to, mark_range, mark);
    else
        mark_range(from, to, mark);
}

static void mark_contents(struct mark *mark, struct block block)
{
    if (unlikely(mark->holes))
        maps_each_readable(mark->maps, block.start, block.start + block.size, mark_present, mark);
    else
        mark_present(block.start, block.start + block.size, mark);
}

void mark_reached(struct mark *mark)
{
    while (mark->depth) {
        mark->depth--;
        mark_contents(mark, mark->stack[mark->depth]);
    }
}

/* Makes the block lost, and what it leads to lost with it. */
static void lead(struct mark *mark, uint32_t number, struct block block)
{
    mark->heap->state[number] = BLOCK_LOST;
    mark->leader = &mark->with[number];
    *mark->leader = (struct lost_with){0, 0};
    mark_contents(mark, block);
    mark_reached(mark);
}

static void lead_first(uint32_t number, struct block block, void *with)
{
    struct mark *mark = with;
    if (mark->heap->state[number] != BLOCK_LIVE)
        return;
    sheaf_assert(mark->leaders < mark->most);
    mark->list[mark->leaders++] = block;
    lead(mark, number, block);
}

void mark_lost(struct mark *mark)
{
    struct block block;
    mark->found = BLOCK_LOST_WITH;
    heap_each(mark->heap, lead_first, mark);
    for (uint32_t i = 0; i < mark->heap->blocks; i++)
        if (mark->heap->state[i] >= BLOCK_LOST)
            mark->heap->state[i] = BLOCK_LIVE;
    while (mark->leaders) {
        uint32_t number = heap_find(mark->heap, mark->list[--mark->leaders].start, &block);
        if (number != HEAP_NONE && mark->heap->state[number] == BLOCK_LIVE)
            lead(mark, number, block);
    }
}
