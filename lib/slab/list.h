/* The lists of a cache's slabs, for the files of this folder. What changes lists is called with the lock held. */
#ifndef SHEAF_SLAB_LIST_H
#define SHEAF_SLAB_LIST_H

#include "slab/descriptor.h"

static inline uint32_t slab_free_objects(const struct slab_cache *cache, const struct slab *slab)
{
    return slab->returned + (cache->objects - slab->mark);
}

static inline char *slab_start(const struct slab *slab)
{
    return unit_address(slab->unit);
}

/* Whether the object was handed out since the slab came to be. */
static inline bool handed_out(const struct slab_cache *cache, const struct slab *slab, uint32_t index)
{
    if (unlikely(cache->shuffle)) /* an index behind the last object has no position */
        return index < cache->objects && shuffle_position(cache->shuffle, slab->start, index) < slab->mark;
    return index < slab->mark;
}

/* ---- lists; the lock is held ---- */

static inline void list_remove(struct slab_cache *cache, struct slab *slab)
{
    if (slab->list == SLAB_UNLISTED)
        return;
    if (slab->prev)
        descriptor_of(slab->prev)->next = slab->next;
    else
        cache->lists[slab->list] = slab->next;
    if (slab->next)
        descriptor_of(slab->next)->prev = slab->prev;
    slab->list = SLAB_UNLISTED;
}

static inline void list_insert(struct slab_cache *cache, struct slab *slab, uint8_t list)
{
    uint32_t head = cache->lists[list];
    slab->list = list;
    slab->prev = 0;
    slab->next = head;
    if (head)
        descriptor_of(head)->prev = slab->reference;
    cache->lists[list] = slab->reference;
}

/*
 * Put the slab where it belongs by what is free in it. One with holes stays in the last list until something is taken
 * from it, or half of what was out of it has come back.
 */
static inline void list_update(struct slab_cache *cache, struct slab *slab)
{
    uint32_t free = slab_free_objects(cache, slab);
    uint8_t list = SLAB_UNLISTED;
    if (free)
        list = free == cache->objects ? SLAB_EMPTIEST : (uint8_t)(free * SLAB_QUARTERS / cache->objects);
    if (unlikely(slab->holes)) {
        if (2 * (cache->objects - free) <= slab->holes)
            slab->holes = 0;
        else
            list = SLAB_HOLES;
    }
    if (list == slab->list)
        return;
    if (slab->list == SLAB_UNLISTED)
        cache->add_partial++;
    list_remove(cache, slab);
    if (list != SLAB_UNLISTED)
        list_insert(cache, slab, list);
}

/* File a slab that objects came back to; returns it when it is empty and one too many. The lock is held. */
struct slab *slab_settle(struct slab_cache *cache, struct slab *slab);

/* Give it to the region; it is on no list, and no lock is held. */
void slab_release(struct slab_cache *cache, struct slab *slab);

#endif
