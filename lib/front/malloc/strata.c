#include "front/malloc/strata.h"
#include "cache/ends.h"
#include "front/malloc/large.h"
#include "diagnostics/profile/area.h"
#include "memory/space/mapped.h"

/* Adds the objects of a cache to its stratum. Other threads may allocate meanwhile; each slot then counts a little
 * more or less. */
static void count_cache(const struct kmem_cache *cache, struct sheaf_profile_stratum *stratum)
{
    uint64_t allocs = 0, frees = 0;
    for (unsigned slot = 0; slot < read_once(slot_top); slot++) {
        const uint64_t *counters = counter_at(slot, cache->number, 0);
        struct ends_account ends = ends_account(cache, read_once(slot_words(slot, word_id(cache->number))->top));
        allocs += read_once(counters[COUNT_alloc_fastpath]) + read_once(counters[COUNT_alloc_slowpath]);
        allocs += (uint64_t)(int32_t)ends.pops;
        frees += read_once(counters[COUNT_free_fastpath]) + read_once(counters[COUNT_free_slowpath]);
        frees += read_once(counters[COUNT_free_rcu_done]) + (uint64_t)(int32_t)ends.pushes;
    }
    int64_t live = (int64_t)(cache->inherited + allocs - frees);
    stratum->size = cache->slab.size;
    stratum->live_count += live > 0 ? (uint64_t)live : 0;
    stratum->alloc_count += allocs;
}

void malloc_count_strata(struct sheaf_profile_stratum *strata)
{
    for (unsigned i = 0; i < STRATA; i++)
        strata[i].live_count = strata[i].alloc_count = 0;
    for (unsigned i = CACHE_FIRST; i < read_once(cache_top); i++)
        if (cache_in_use(cache_at(i)) && cache_is_class(cache_at(i)))
            count_cache(cache_at(i), &strata[cache_at(i)->home - CACHE_FIRST]);
    struct large_totals large = large_totals();
    strata[STRATUM_LARGE].live_count = large.blocks;
    strata[STRATUM_LARGE].live_bytes = large.bytes + mapped_bytes();
}
