#include "diagnostics/leak/groups.h"
#include "cache/kmem_cache.h"
#include "diagnostics/feature/depot.h"
#include "diagnostics/feature/guarded_pool.h"
#include "diagnostics/leak/memory.h"
#include "diagnostics/leak/sort.h"
#include "diagnostics/profile/area.h"

#include <string.h>

/* The kinds of keys. */
#define BY_DEPOT   (1ull << 60)
#define BY_PROFILE (2ull << 60)
#define BY_CACHE   (3ull << 60)
#define BY_SIZE    (4ull << 60)
#define KINDS      (15ull << 60)

static const char large[] = "malloc-large", samples[] = "samples";

struct grouping {
    const struct mark *mark;
    struct groups *groups;
};

static uint64_t mixed(uint64_t key)
{
    key *= 0x9e3779b97f4a7c15ull;
    return key ^ key >> 32;
}

static uint64_t key_of_pcs(const uintptr_t *pcs, unsigned depth)
{
    uint64_t hash = depth;
    for (unsigned i = 0; i < depth; i++)
        hash = mixed(hash ^ pcs[i]);
    return hash & ~KINDS;
}

/* Finds what the block has in common with others, and fills in the group as it would be with no block in it. */
static void describe(const struct heap *heap, uint32_t number, struct block block, struct group *group)
{
    uint32_t reference = heap_stack(heap, number, block);
    const struct depot_stack *stack = depot_stack(reference);
    const struct kmem_cache *cache = heap_cache(heap, block);
    *group = (struct group){.cache = cache ? cache->name : pool_has((void *)block.start) ? samples : large};
    if (stack) {
        group->key = BY_DEPOT | reference;
        group->depth = stack->depth < STACK_MOST ? stack->depth : STACK_MOST;
        memcpy(group->pcs, stack->pcs, group->depth * sizeof(*group->pcs));
        return;
    }
    group->depth = area_stack((const void *)block.start, group->pcs, STACK_MOST);
    if (group->depth)
        group->key = BY_PROFILE | key_of_pcs(group->pcs, group->depth);
    else
        group->key = cache ? BY_CACHE | cache->home : BY_SIZE | block.size;
}

/* The group with the same key; a new one if there is none. There is room for a group of each lost block. */
static struct group *group_like(struct groups *groups, const struct group *wanted)
{
    for (uint64_t at = mixed(wanted->key);; at++) {
        uint32_t place = groups->index[at & groups->mask];
        if (place && groups->all[place - 1].key == wanted->key)
            return &groups->all[place - 1];
        if (place)
            continue;
        groups->all[groups->count++] = *wanted;
        groups->index[at & groups->mask] = groups->count;
        return &groups->all[groups->count - 1];
    }
}

static void add_lost(const struct grouping *grouping, uint32_t number, struct block block)
{
    struct groups *groups = grouping->groups;
    const struct lost_with *with = &grouping->mark->with[number];
    struct group like;
    describe(grouping->mark->heap, number, block, &like);
    struct group *group = group_like(groups, &like);
    if (group->cache && strcmp(group->cache, like.cache) != 0)
        group->cache = NULL;
    group->blocks++;
    group->bytes += block.size;
    group->with.blocks += with->blocks;
    group->with.bytes += with->bytes;
}

static void add_to(struct lost_with *sum, uint64_t bytes)
{
    sum->blocks++;
    sum->bytes += bytes;
}

static void add(uint32_t number, struct block block, void *with)
{
    const struct grouping *grouping = with;
    struct groups *groups = grouping->groups;
    uint8_t state = grouping->mark->heap->state[number];
    if (state == BLOCK_REACHED)
        add_to(&groups->reached, block.size);
    else if (state == BLOCK_LOST_WITH)
        add_to(&groups->with, block.size);
    else if (state == BLOCK_LOST && groups->count < groups->most) {
        groups->blocks++;
        groups->bytes += block.size;
        add_lost(grouping, number, block);
    }
}

static uint64_t weight(const struct group *group)
{
    return group->bytes + group->with.bytes;
}

/* By bytes, then in some fixed order. */
static bool precedes(const void *one, const void *other)
{
    const struct group *a = one, *b = other;
    return weight(a) != weight(b) ? weight(a) > weight(b) : a->key < b->key;
}

bool groups_make(struct groups *groups, const struct mark *mark)
{
    struct grouping grouping = {mark, groups};
    uint64_t lost = 0, size = 64;
    for (uint32_t i = 0; i < mark->heap->blocks; i++)
        lost += mark->heap->state[i] == BLOCK_LOST;
    while (size < 2 * lost)
        size *= 2;
    *groups = (struct groups){.most = (uint32_t)lost, .mask = (uint32_t)(size - 1)};
    groups->all = leak_map((lost + 1) * sizeof(*groups->all));
    groups->index = leak_map(size * sizeof(*groups->index));
    if (!groups->all || !groups->index)
        return false;
    heap_each(mark->heap, add, &grouping);
    leak_sort(groups->all, groups->count, sizeof(*groups->all), precedes);
    return true;
}
