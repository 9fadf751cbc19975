#define _GNU_SOURCE
#include "preload/record.h"
#include "preload/control.h"
#include "preload/profile.h"
#include "preload/record_file.h"
#include "preload/status.h"
#include "front/malloc/large.h"
#include "cache/kmem/reserve.h"
#include "cache/ends.h"
#include "cache/kmem_cache.h"
#include "cache/deferred/rcu.h"
#include "process/census.h"
#include "process/decay.h"
#include "process/helper.h"
#include "cache/remote.h"
#include "platform/os/vm.h"
#include "memory/region/huge.h"
#include "memory/space/mapped.h"
#include "memory/slab/holes.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

/*
 * The slots' counters lie in the file itself (counters_file points there). What the cache layer knows is copied to
 * it after slow paths that change it. Everything that affects decisions stays in private memory, because a child made
 * by a bare clone(), which runs no handlers, shares the mapping until its first slow path. There `alive`, a page that
 * the kernel wipes in children, tells it that it is a child.
 */
static uint32_t *alive;

/* ---- publishing ---- */

static void publish_process(void)
{
    uint64_t *values = (uint64_t *)(void *)record_at(RECORD_VALUES_AT);
    write_once(values[VALUE_region_bytes], (uint64_t)region_mapped() << SLICE_SHIFT);
    write_once(values[VALUE_slab_bytes], region_stats.slab_slices << SLICE_SHIFT);
    struct large_totals large = large_totals();
    write_once(values[VALUE_large_bytes], large.bytes);
    write_once(values[VALUE_large_blocks], large.blocks);
    write_once(values[VALUE_large_alloc], large.allocs);
    write_once(values[VALUE_large_free], large.frees);
    write_once(values[VALUE_large_remap], region_stats.large_remap);
    write_once(values[VALUE_huge_bytes], huge_slices() << SLICE_SHIFT);
    write_once(values[VALUE_warm_bytes], large.warm_bytes);
    write_once(values[VALUE_span_cache_bytes], large.span_cache_bytes);
    write_once(values[VALUE_purged_bytes], region_stats.purged_slices << SLICE_SHIFT);
    write_once(values[VALUE_hole_bytes], slab_hole_bytes());
    write_once(values[VALUE_mapped_bytes], mapped_bytes());
    write_once(values[VALUE_sheaf_bytes], sheaf_pool_bytes());
    write_once(values[VALUE_sheaf_alloc], sheaf_pool_cut());
    write_once(values[VALUE_restarts], rseq_restarts);
    write_once(values[VALUE_remote_drains], remote_drains());
    write_once(values[VALUE_trims], decay_trims());
    write_once(values[VALUE_reserve_slices], region_stats.reserve_slices);
    struct sheaf_rcu_stats rcu = {0};
    rcu_stats(&rcu);
    write_once(values[VALUE_rcu_bytes], rcu.bytes);
    write_once(values[VALUE_rcu_sheaves], rcu.sheaves);
    write_once(values[VALUE_rcu_slabs], rcu.slabs);
    write_once(values[VALUE_rcu_grace_periods], rcu.grace_periods);
    write_once(values[VALUE_rcu_waits], rcu.waits);
    write_once(values[VALUE_rcu_lost], rcu.lost);
    write_once(values[VALUE_vm_fail], atomic_load(&vm_failures));
}

static struct sheaf_record_cache *entry_of(const struct kmem_cache *cache)
{
    struct sheaf_record_cache *entry =
        (struct sheaf_record_cache *)(void *)record_at(RECORD_CACHES_AT) + record_number(cache->number);
    if (!entry->name[0] && cache_in_use(cache)) {
        struct sheaf_record_cache new = {
            .object_size = cache->object_size,
            .size = cache->slab.size,
            .align = cache->align,
            .slab_size = cache->slab.slices * (uint32_t)SLICE_SIZE,
            .slab_objects = cache->slab.objects,
            .capacity = cache->capacity,
            .flags = cache_is_class(cache) |
                     (cache->nodes ? (numa.node[cache->slab.node] + 1u) << SHEAF_RECORD_NODE_SHIFT : 0),
        };
        memcpy(new.name, cache->name, sizeof(new.name));
        new.checksum = record_checksum((const char *)&new, offsetof(struct sheaf_record_cache, checksum));
        /* at once: a reader that meets an incomplete entry reads again, but a killed process leaves it incomplete */
        memcpy(entry, &new, offsetof(struct sheaf_record_cache, gauges));
    } else if (!cache_in_use(cache)) {
        memset(entry, 0, sizeof(*entry));
    }
    return entry;
}

/* Returns whether the memory of the process may have changed too: slabs came or went, or objects wait for a grace
 * period. */
static bool publish_cache(const struct kmem_cache *cache)
{
    if (record_number(cache->number) >= record_file.caches)
        return true;
    uint64_t *gauges = entry_of(cache)->gauges, in_rcu = rcu_objects(cache);
    bool moved = gauges[GAUGE_alloc_slab] != cache->slab.alloc_slab ||
                 gauges[GAUGE_free_slab] != cache->slab.free_slab || gauges[GAUGE_rcu_objects] != in_rcu;
    struct cache_census barns;
    cache_census_barns(cache, &barns);
    write_once(gauges[GAUGE_slabs], cache->slab.slabs);
    write_once(gauges[GAUGE_objects], (uint64_t)cache->slab.slabs * cache->slab.objects);
    write_once(gauges[GAUGE_free_in_slabs], cache->slab.free);
    write_once(gauges[GAUGE_barn_sheaves], barns.barn_sheaves);
    write_once(gauges[GAUGE_barn_objects], barns.in_barns);
    write_once(gauges[GAUGE_barn_limit], barns.barn_limit);
    write_once(gauges[GAUGE_inherited], cache->inherited);
    write_once(gauges[GAUGE_alloc_slab], cache->slab.alloc_slab);
    write_once(gauges[GAUGE_free_slab], cache->slab.free_slab);
    write_once(gauges[GAUGE_free_add_partial], cache->slab.add_partial);
    write_once(gauges[GAUGE_free_remove_partial], cache->slab.remove_partial);
    write_once(gauges[GAUGE_lock_wait], cache->slab.lock->waits);
    write_once(gauges[GAUGE_alloc_fail], cache->alloc_fail);
    write_once(gauges[GAUGE_reserve_objects], atomic_load_explicit(&cache->reserved, memory_order_relaxed));
    write_once(gauges[GAUGE_rcu_objects], in_rcu);
    write_once(gauges[GAUGE_reserve_size], reserve_size(cache));
    return moved;
}

bool record_is_ours(void)
{
    if (unlikely(!*alive))
        record_fork_child();
    return record_file.header;
}

static void publish(const struct kmem_cache *cache)
{
    if (!record_is_ours())
        return;
    if (!cache || publish_cache(cache))
        publish_process();
}

static void publish_all(void)
{
    for (unsigned i = CACHE_FIRST; i < cache_top; i++)
        if (cache_in_use(cache_at(i)))
            publish_cache(cache_at(i));
    publish_process();
}

/* ---- start and fork ---- */

static void count_in_file(void)
{
    counters_file_stride = (intptr_t)record_slot_stride();
    for (unsigned i = 0; i < CACHE_MAX; i += COUNTER_GROUP)
        if (record_number(i) < record_file.caches)
            __atomic_store_n(&counters_file[i / COUNTER_GROUP],
                             (uintptr_t)record_at(record_file.slots_at) + record_number(i) * COUNTER_STRIDE,
                             __ATOMIC_RELEASE);
    hooks.publish = publish;
    control_start();
}

void record_start(void)
{
    if (!cache_layer_ready || record_file.header)
        return;
    size_t page = space.page_size;
    alive = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (alive == MAP_FAILED || madvise(alive, page, MADV_WIPEONFORK) != 0) {
        record_complain("the kernel cannot wipe pages on fork", "; records need Linux 4.14 or later");
        return;
    }
    *alive = 1;
    if (!record_file_open())
        return;
    /* Copies what was counted before. Usually no other thread runs at the first allocation. */
    for (unsigned slot = 0; slot < slot_top; slot++)
        for (unsigned i = CACHE_FIRST; i < cache_top; i++)
            if (cache_in_use(cache_at(i)) && record_number(i) < record_file.caches)
                memcpy(record_at(record_file.slots_at) + slot * record_slot_stride() +
                           record_number(i) * COUNTER_STRIDE,
                       counter_at(slot, i, 0), COUNTER_STRIDE);
    count_in_file();
    publish_all();
}

/*
 * Adds what the words of all slots count to the counters. Other threads must not run.
 */
static void fold_slots(void)
{
    for (unsigned slot = 0; slot < slot_top; slot++)
        for (unsigned i = CACHE_FIRST; i < cache_top; i++) {
            uint64_t *word = &slot_words(slot, word_id(i))->top;
            uint64_t top = read_once(*word);
            if (cache_in_use(cache_at(i)) && top && !top_claimed(top))
                write_once(*word, ends_top(cache_at(i), slot, ends_fold(cache_at(i), slot, top)));
        }
}

/*
 * The child counts from zero; what it inherited is counted separately. It counts in memory until its own file has
 * taken the place of the parent's, whose counters therefore stay as they are.
 */
void record_fork_child(void)
{
    if (!record_file.header)
        return;
    int saved = errno;
    *alive = 1;
    for (unsigned i = CACHE_FIRST; i < cache_top; i++) {
        struct cache_census census;
        if (cache_in_use(cache_at(i))) {
            cache_census(cache_at(i), &census);
            cache_at(i)->inherited_prefilled = census.in_prefilled;
            cache_at(i)->inherited_rcu = census.in_rcu;
            cache_at(i)->inherited = census.out - census_kept(&census);
        }
    }
    record_file.header = NULL;
    control_fork_child();
    helper_forget();
    memset(counters_file, 0, sizeof(counters_file));
    fold_slots();
    for (unsigned slot = 0; slot < slot_top; slot++)
        for (unsigned i = CACHE_FIRST; i < cache_top; i++)
            if (cache_in_use(cache_at(i)))
                memset(counter_at(slot, i, 0), 0, COUNTER_STRIDE);
    if (record_file_open()) {
        count_in_file();
        publish_all();
    } else {
        hooks.publish = NULL;
        control_stop();
    }
    profile_record_fork_child();
    errno = saved;
}

/* ---- the profile area ---- */

void record_extend_for_profile(void)
{
    record_file.reach_profile = true;
}

/* The last page is in the file only if all others are. Once the area is in use, children have one from the start. */
void *record_profile_area(size_t *bytes)
{
    char *area = record_file.header ? record_file.profile : NULL;
    size_t page = space.page_size;
    if (!area || !vm_populate(area + SHEAF_PROFILE_BYTES - page, page) || !vm_populate(area, page) ||
        !record_file_has_sampled())
        return NULL;
    record_file.reach_profile = true;
    *bytes = SHEAF_PROFILE_BYTES;
    return area;
}

/* ---- end ---- */

/* Not ru_maxrss in the first place: a program that was started by vfork inherits its parent's. */
static uint64_t peak_rss(void)
{
    uint64_t peak = status_bytes("VmHWM:");
    struct rusage usage;
    if (!peak && getrusage(RUSAGE_SELF, &usage) == 0)
        peak = (uint64_t)usage.ru_maxrss * 1024;
    return peak;
}

void record_end(void)
{
    if (!record_file.header)
        return;
    cache_fold_all();
    profile_count();
    publish_all();
    uint64_t *values = (uint64_t *)(void *)record_at(RECORD_VALUES_AT);
    write_once(values[VALUE_resident_bytes], status_bytes("VmRSS:"));
    write_once(values[VALUE_peak_resident_bytes], peak_rss());
    __atomic_store_n(&values[VALUE_end_time_ns], record_now_ns(),
                     __ATOMIC_RELEASE); /* last: all other values are final */
}
