/* Where the objects of a cache are. */
#ifndef SHEAF_PROCESS_CENSUS_H
#define SHEAF_PROCESS_CENSUS_H

#include "cache/kmem_cache.h"

/* Numbers of objects, exact when the cache is quiet. */
struct cache_census {
    uint64_t out, in_use, in_sheaves, in_barns, in_prefilled, in_reserve, waiting, barn_sheaves, barn_limit;
    uint64_t in_rcu; /* of those in use: freed, and waiting for a grace period */
};
void cache_census(const struct kmem_cache *cache, struct cache_census *census);

/* Set only the fields about barns, which is cheap. */
void cache_census_barns(const struct kmem_cache *cache, struct cache_census *census);

/* Objects that are out of the slabs and not in use. */
uint64_t census_kept(const struct cache_census *census);

void census_add(struct cache_census *sum, const struct cache_census *one);

/* Assert conservation (cache/kmem_cache.h). The cache must be quiet. */
void cache_check(struct kmem_cache *cache);

#endif
