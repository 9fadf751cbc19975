/*
 * Frees empty sheaves at once instead of making them spares, as the kernel did before it kept them.
 *
 * For a program that contains the allocator and is linked with --wrap=cache_put_sheaf, which puts the function below
 * before the allocator's.
 */
#ifndef BENCH_SEEDS_DROP_EMPTY_H
#define BENCH_SEEDS_DROP_EMPTY_H

#include "cache/kmem_cache.h"

static bool drop_empty; /* set it before the first allocation; false changes nothing */

void __real_cache_put_sheaf(struct kmem_cache *cache, unsigned slot, struct sheaf *sheaf);
void __wrap_cache_put_sheaf(struct kmem_cache *cache, unsigned slot, struct sheaf *sheaf);
void __wrap_cache_put_sheaf(struct kmem_cache *cache, unsigned slot, struct sheaf *sheaf)
{
    if (drop_empty && !sheaf->count)
        empty_sheaf_free(sheaf);
    else
        __real_cache_put_sheaf(cache, slot, sheaf);
}

#endif
