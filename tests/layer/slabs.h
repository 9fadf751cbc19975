/* A cache of the slab layer, for the tests of slabs and of their holes. */
#ifndef SHEAF_TESTS_LAYER_SLABS_H
#define SHEAF_TESTS_LAYER_SLABS_H

#include "layer.h"
#include "memory/slab/list.h"

#define NUMBER  200 /* of the cache */
#define PAGE    4096ul
#define OBJECTS 64u /* of 1 KiB in a slab, 4 in a page */

static struct slab_cache cache;
static void *objects[10 * 8192];

static void start_cache(uint32_t size)
{
    slab_cache_init(&cache, NUMBER, size);
    cache.id = 5764;
    cache.size = size;
}

static void start(uint32_t size)
{
    start_region(0, 1000);
    start_cache(size);
}

static void take(void **into, unsigned n)
{
    for (unsigned done = 0, step; done < n; done += step) {
        step = n - done < SLAB_BATCH ? n - done : SLAB_BATCH;
        must_be(slab_take_ascending(&cache, into + done, step), step);
    }
}

static void give(void *const *from, unsigned n)
{
    struct slab_report report;
    for (unsigned i = 0; i < n; i++) {
        must(slab_put(&cache, from + i, 1, &report));
        must_be(report.fault, SLAB_OK);
    }
}

static struct slab *slab_of(const void *object)
{
    return descriptor_of_slice(slice_of(object));
}

#endif
