#include "diagnostics/leak/heap.h"
#include "cache/kmem_cache.h"
#include "diagnostics/feature/debug.h"
#include "diagnostics/feature/instrument.h"
#include "diagnostics/feature/guarded_pool.h"
#include "diagnostics/leak/memory.h"
#include "diagnostics/leak/sort.h"
#include "front/malloc/guarded.h"
#include "front/malloc/large_debug.h"
#include "memory/space/mapped.h"
#include "memory/slab/descriptor.h"

/* ---- one slice ---- */

/* The cache whose slab the slice belongs to; NULL if it belongs to none. */
static const struct kmem_cache *cache_of_slice(uint32_t slice)
{
    uint16_t id = read_once(*slice_id(slice));
    return id ? cache_at(push_id_number((struct push_id){id})) : NULL;
}

static bool is_slab_start(uint32_t slice)
{
    return read_once(slice_at(slice)->kind) == SLICE_SLAB && cache_of_slice(slice);
}

static bool is_large(uint32_t slice)
{
    return read_once(slice_at(slice)->kind) == SLICE_LARGE;
}

static bool is_debugged(const struct kmem_cache *cache)
{
    return cache->instruments & INSTRUMENT_DEBUG;
}

static const struct debug_object *live_record(const struct debug_object *record)
{
    return record && atomic_load(&record->state) == OBJECT_LIVE ? record : NULL;
}

static const struct debug_object *object_record(const struct kmem_cache *cache, uint32_t slice, uint32_t index)
{
    const struct debug_object *first = is_debugged(cache) ? debug_of_slice(slice, false) : NULL;
    return first ? live_record(first + index) : NULL;
}

static const struct debug_object *large_record(uint32_t slice)
{
    return large_debug ? live_record(debug_of_slice(slice, false)) : NULL;
}

static struct block large_block(uint32_t slice)
{
    const struct slice *span = slice_at(slice);
    const struct debug_object *record = large_record(slice);
    struct block block = {(uintptr_t)slice_address(slice), (size_t)span->length << SLICE_SHIFT};
    if (record)
        block.size = record->size;
    else if (span->guarded)
        block.size = guarded_size(span);
    return block;
}

static struct block object_block(const struct kmem_cache *cache, uint32_t slice, uint32_t index)
{
    struct block block = {(uintptr_t)slice_address(slice) + (uintptr_t)index * cache->slab.size, cache->slab.size};
    const struct debug_object *record = object_record(cache, slice, index);
    if (record) {
        block.start += record->offset;
        block.size = record->size + !record->size;
    }
    return block;
}

static bool object_is_live(const struct kmem_cache *cache, uint32_t slice, uint32_t index)
{
    if (is_debugged(cache))
        return object_record(cache, slice, index);
    return !slab_is_free(&cache->slab, (char *)slice_address(slice) + (size_t)index * cache->slab.size);
}

/* ---- the tables ---- */

static uint64_t count_blocks(uint32_t slices)
{
    uint64_t n = 0;
    for (uint32_t slice = 0; slice < slices; slice++)
        n += is_slab_start(slice) ? cache_of_slice(slice)->slab.objects : is_large(slice);
    return n;
}

static void number_slice(struct heap *heap, uint32_t slice, uint32_t slices, uint32_t objects)
{
    for (uint32_t i = 0; i < slices && slice + i < heap->slices; i++)
        heap->slice[slice + i] = (struct heap_slice){heap->blocks + 1, slice};
    heap->blocks += objects;
}

static void number_all(struct heap *heap)
{
    for (uint32_t slice = 0; slice < heap->slices; slice++) {
        if (is_slab_start(slice)) {
            const struct kmem_cache *cache = cache_of_slice(slice);
            for (uint32_t i = 0; i < cache->slab.objects; i++)
                heap->state[heap->blocks + i] = object_is_live(cache, slice, i) ? BLOCK_LIVE : BLOCK_ABSENT;
            number_slice(heap, slice, cache->slab.slices, cache->slab.objects);
        } else if (is_large(slice)) {
            heap->state[heap->blocks] = BLOCK_LIVE;
            number_slice(heap, slice, slice_at(slice)->length, 1);
        }
    }
}

struct extras {
    struct heap *heap;
    uint32_t most;
};

static void add_extra(const void *start, size_t size, uint32_t stack, void *with)
{
    struct extras *extras = with;
    if (extras->heap->extra_count < extras->most)
        extras->heap->extras[extras->heap->extra_count++] =
            (struct heap_extra){{(uintptr_t)start, size + !size}, stack};
}

static void add_mapped(const void *start, size_t size, void *with)
{
    add_extra(start, size, 0, with);
}

static bool by_address(const void *a, const void *b)
{
    return ((const struct heap_extra *)a)->block.start < ((const struct heap_extra *)b)->block.start;
}

static bool read_extras(struct heap *heap)
{
    struct extras extras = {heap, POOL_SLOTS};
    if (mapped_bytes())
        extras.most += MAPPED_MAX;
    heap->extras = leak_map(extras.most * sizeof(*heap->extras));
    if (!heap->extras)
        return false;
    if (mapped_bytes())
        mapped_each(add_mapped, &extras);
    pool_each(add_extra, &extras);
    leak_sort(heap->extras, heap->extra_count, sizeof(*heap->extras), by_address);
    return true;
}

bool heap_read(struct heap *heap)
{
    *heap = (struct heap){.slices = region_end()};
    uint64_t blocks = count_blocks(heap->slices);
    if (!read_extras(heap) || blocks + heap->extra_count >= HEAP_NONE)
        return false;
    heap->slice = leak_map(heap->slices * sizeof(*heap->slice));
    heap->state = leak_map(blocks + heap->extra_count);
    if (!heap->slice || !heap->state)
        return false;
    number_all(heap);
    heap->extra_first = heap->blocks;
    for (uint32_t i = 0; i < heap->extra_count; i++)
        heap->state[heap->blocks++] = BLOCK_LIVE;
    for (uint32_t i = 0; i < heap->blocks; i++)
        heap->live += heap->state[i] == BLOCK_LIVE;
    return true;
}

/* ---- finding ---- */

static bool holds(struct block block, uintptr_t address)
{
    return address - block.start < block.size;
}

static uint32_t find_extra(const struct heap *heap, uintptr_t address, struct block *block)
{
    uint32_t low = 0, high = heap->extra_count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (heap->extras[middle].block.start > address)
            high = middle;
        else
            low = middle + 1;
    }
    if (!low || !holds(heap->extras[low - 1].block, address))
        return HEAP_NONE;
    *block = heap->extras[low - 1].block;
    return heap->extra_first + low - 1;
}

/* A slab has as many objects as when it was numbered, unless a thread was not stopped. */
static uint32_t find_object(const struct heap *heap, struct heap_slice in, uintptr_t address, struct block *block)
{
    const struct kmem_cache *cache = cache_of_slice(in.head);
    uint32_t slice, index;
    if (!cache || !slab_locate(&cache->slab, (void *)address, &slice, &index) || slice != in.head)
        return HEAP_NONE;
    uint32_t number = in.first - 1 + index;
    if (number >= heap->blocks || heap->state[number] == BLOCK_ABSENT)
        return HEAP_NONE;
    *block = object_block(cache, slice, index);
    return holds(*block, address) ? number : HEAP_NONE;
}

uint32_t heap_find(const struct heap *heap, uintptr_t address, struct block *block)
{
    uintptr_t slice = slice_of((void *)address);
    struct heap_slice in = slice < heap->slices ? heap->slice[slice] : (struct heap_slice){0};
    if (!in.first)
        return heap->extra_count ? find_extra(heap, address, block) : HEAP_NONE;
    if (!is_large(in.head))
        return find_object(heap, in, address, block);
    *block = large_block(in.head);
    return heap->state[in.first - 1] != BLOCK_ABSENT && holds(*block, address) ? in.first - 1 : HEAP_NONE;
}

/* ---- walking ---- */

static void each_in_slab(const struct heap *heap, uint32_t slice, heap_visitor *visit, void *with)
{
    const struct kmem_cache *cache = cache_of_slice(slice);
    uint32_t first = heap->slice[slice].first - 1;
    for (uint32_t i = 0; i < cache->slab.objects && first + i < heap->blocks; i++)
        if (heap->state[first + i] != BLOCK_ABSENT)
            visit(first + i, object_block(cache, slice, i), with);
}

void heap_each(const struct heap *heap, heap_visitor *visit, void *with)
{
    for (uint32_t slice = 0; slice < heap->slices; slice++) {
        struct heap_slice in = heap->slice[slice];
        if (!in.first || in.head != slice)
            continue;
        if (is_slab_start(slice))
            each_in_slab(heap, slice, visit, with);
        else if (is_large(slice) && heap->state[in.first - 1] != BLOCK_ABSENT)
            visit(in.first - 1, large_block(slice), with);
    }
    for (uint32_t i = 0; i < heap->extra_count; i++)
        if (heap->state[heap->extra_first + i] != BLOCK_ABSENT)
            visit(heap->extra_first + i, heap->extras[i].block, with);
}

/* ---- where a block comes from ---- */

const struct kmem_cache *heap_cache(const struct heap *heap, struct block block)
{
    uintptr_t slice = slice_of((void *)block.start);
    return slice < heap->slices ? cache_of_slice((uint32_t)slice) : NULL;
}

uint32_t heap_stack(const struct heap *heap, uint32_t number, struct block block)
{
    if (number >= heap->extra_first)
        return heap->extras[number - heap->extra_first].stack;
    uint32_t slice = (uint32_t)slice_of((void *)block.start);
    const struct kmem_cache *cache = cache_of_slice(slice);
    const struct debug_object *record =
        cache && is_debugged(cache) ? debug_place(cache, (void *)block.start).record : large_record(slice);
    return record ? record->allocated.stack : 0;
}
