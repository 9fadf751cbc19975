/*
 * setting_change() changes what the options set at the start, within the bounds of the table of options, and nothing
 * for values and subjects that are wrong. Includes internal headers.
 */
#define _GNU_SOURCE
#include "../cases.h"
#include "cache/kmem_cache.h"
#include "platform/config/config.h"
#include "process/helper.h"
#include "process/setting.h"
#include "memory/region/huge.h"
#include "memory/region/state.h"
#include "sheaf/malloc.h"
#include "cache/slot/span_cache.h"

static struct sheaf_config wanted; /* by sheaf_configure() */

static void start_allocator(void)
{
    void *p = sheaf_malloc(100);
    must(p);
    sheaf_free(p);
}

CASE(setting_decay)
{
    start_allocator();
    must(setting_change(SHEAF_SET_DECAY, 250) == SHEAF_DONE);
    must(sheaf_config.decay_ms == 250 && region.decay_ms == 250);
    must(setting_change(SHEAF_SET_DECAY, 86400001) == SHEAF_RANGE &&
         setting_change(SHEAF_SET_DECAY, 1ull << 32) == SHEAF_RANGE);
    must(sheaf_config.decay_ms == 250 && region.decay_ms == 250);
    must(setting_change(SHEAF_SET_DECAY, 0) == SHEAF_DONE && region.decay_ms == 0);
}

CASE(setting_keep)
{
    start_allocator();
    must(span_cache_on && !sheaf_config.chosen.keep);
    must(setting_change(SHEAF_SET_KEEP, 8 << 20) == SHEAF_DONE);
    must(region.floor == 8 << 20 >> SLICE_SHIFT && region.retain[ARENA_LARGE].most == region.floor);
    must(sheaf_config.keep == 8 << 20 && sheaf_config.chosen.keep);
    must(setting_change(SHEAF_SET_KEEP, 0) == SHEAF_DONE && !span_cache_on && region.floor == 0);
    must(setting_change(SHEAF_SET_KEEP, (1ull << 40) + 1) == SHEAF_RANGE && sheaf_config.keep == 0);
}

CASE(setting_helper)
{
    start_allocator();
    must(setting_change(SHEAF_SET_HELPER, 1) == SHEAF_DONE && sheaf_config.helper == HELPER_ON);
    must(setting_change(SHEAF_SET_HELPER, 2) == SHEAF_DONE && sheaf_config.helper == HELPER_AUTO);
    must(setting_change(SHEAF_SET_HELPER, 0) == SHEAF_DONE && sheaf_config.helper == HELPER_OFF);
    must(setting_change(SHEAF_SET_HELPER, 3) == SHEAF_RANGE);
    must(setting_change(SHEAF_SET_DECAY, 0) == SHEAF_DONE);
    must(setting_change(SHEAF_SET_HELPER, 1) == SHEAF_NO_EFFECT && sheaf_config.helper == HELPER_OFF);
    must(setting_change(SHEAF_SET_DECAY, 1) == SHEAF_DONE);
    helper_impossible = true;
    must(setting_change(SHEAF_SET_HELPER, 1) == SHEAF_NO_EFFECT && sheaf_config.helper == HELPER_OFF);
}

enum { BLOCKS = 200000, BYTES = 400 };
static void *blocks[BLOCKS];

static void fill(void)
{
    for (int i = 0; i < BLOCKS; i++)
        must((blocks[i] = sheaf_malloc(BYTES)));
}

static void give_all(void)
{
    for (int i = 0; i < BLOCKS; i++)
        sheaf_free(blocks[i]);
}

/* Slabs of 76 MiB have huge pages where they grow beyond 16. */
CASE(setting_huge)
{
    start_allocator();
    must(setting_change(SHEAF_SET_HUGE, 2) == SHEAF_RANGE);
    fill();
    must(huge_slices() > 0);
    must(setting_change(SHEAF_SET_HUGE, 0) == SHEAF_DONE && huge_slices() == 0);
    give_all();
    fill();
    must(huge_slices() == 0);
    must(setting_change(SHEAF_SET_HUGE, 1) == SHEAF_DONE);
    for (int i = 0; i < 200; i++)
        must(sheaf_malloc(30000));
    void *volatile more[4000];
    for (int i = 0; i < 4000; i++)
        must((more[i] = sheaf_malloc(30000)));
    must(huge_slices() > 0);
    give_all();
}

CASE(setting_barn_max)
{
    start_allocator();
    struct kmem_cache *cache = cache_at(CACHE_FIRST);
    while (!cache_in_use(cache))
        cache++;
    uint32_t least = cache->barn_least, most = cache->barn_most;
    must(least < most);
    must(setting_change(SHEAF_SET_BARN_MAX, 2 * sheaf_config.barn_max) == SHEAF_DONE);
    must(cache->barn_least == least && cache->barn_most >= 2 * most - 2 && cache->barn_most <= 2 * most + 2);
    atomic_store(&cache_barn(cache, 0)->grown, 2 * most - least);
    must(setting_change(SHEAF_SET_BARN_MAX, 0) == SHEAF_DONE && cache->barn_most == least);
    must(atomic_load(&cache_barn(cache, 0)->grown) == 0);
    must(setting_change(SHEAF_SET_BARN_MAX, (1ull << 40) + 1) == SHEAF_RANGE);
}

CASE(setting_unknown)
{
    start_allocator();
    struct sheaf_config before = sheaf_config;
    for (unsigned subject = 0; subject < 256; subject++)
        if (subject < SHEAF_SET_DECAY || subject > SHEAF_SET_BARN_MAX)
            must(setting_change(subject, 1) == SHEAF_UNKNOWN);
    must(memcmp(&before, &sheaf_config, sizeof(before)) == 0);
}

CASE(setting_no_effect)
{
    wanted.tiny = true;
    start_allocator();
    must(setting_change(SHEAF_SET_HUGE, 1) == SHEAF_NO_EFFECT && !sheaf_config.huge);
    must(setting_change(SHEAF_SET_BARN_MAX, 1 << 20) == SHEAF_NO_EFFECT);
    must(setting_change(SHEAF_SET_KEEP, 1 << 20) == SHEAF_DONE);
}

void sheaf_configure(struct sheaf_config *config)
{
    config->tiny = wanted.tiny;
}
