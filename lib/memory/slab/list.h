/*
 * The lists of a cache's slabs, for the files of this folder. The caller of a function that changes lists holds
 * the cache's lock.
 */
#ifndef SHEAF_SLAB_LIST_H
#define SHEAF_SLAB_LIST_H

#include "memory/slab/descriptor.h"

static inline uint32_t slab_free_objects(const struct slab_cache *cache, const struct slab *slab)
{
    return slab->returned + (cache->objects - slab->mark);
}

static inline char *slab_start(const struct slab *slab)
{
    return slice_address(slab->slice);
}

/* Whether the object was handed out since the slab was created. */
static inline bool handed_out(const struct slab_cache *cache, const struct slab *slab, uint32_t index)
{
    if (unlikely(cache->shuffle)) /* an index beyond the last object has no position */
        return index < cache->objects && shuffle_position(cache->shuffle, slab->start, index) < slab->mark;
    return index < slab->mark;
}

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
 * Puts the slab on the list for its number of free objects. A slab with holes stays on the last list until an
 * object is taken from it or half of the objects that were out have come back.
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

/*
 * Updates the lists after objects came back to the slab. Returns the slab, off all lists, if it is empty and need
 * not be kept; the caller then calls slab_release(). Otherwise returns NULL. The caller holds the cache's lock.
 */
struct slab *slab_settle(struct slab_cache *cache, struct slab *slab);

/*
 * Give a slab that is on no list back to the region. The caller holds neither the cache's lock nor the region's.
 */
void slab_release(struct slab_cache *cache, struct slab *slab);

#endif
