/* Slabs by themselves: what is taken and given back, in which order, what is refused, and what goes to the region. */
#include "slabs.h"
#include "platform/os/hooks.h"
#include "memory/slab/retire.h"

/* ---- order ---- */

CASE(the_lowest_address_comes_last)
{
    start(1 * KIB);
    must_be(slab_take(&cache, objects, 10), 10);
    for (int i = 1; i < 10; i++)
        must((char *)objects[i - 1] == (char *)objects[i] + KIB);
    must_be((uintptr_t)objects[9] % SLICE_SIZE, 0);
    must_be(slab_take_ascending(&cache, objects, 10), 10);
    for (int i = 1; i < 10; i++)
        must((char *)objects[i] == (char *)objects[i - 1] + KIB);
    must_be(slab_out(&cache), 20);
}

CASE(returned_objects_come_before_fresh_ones)
{
    start(1 * KIB);
    take(objects, 20);
    void *back[] = {objects[7], objects[3], objects[15]};
    struct slab_report report;
    must(slab_put(&cache, back, 3, &report) && report.fault == SLAB_OK);
    void *again[4];
    take(again, 4);
    must(again[0] == objects[3] && again[1] == objects[7] && again[2] == objects[15]);
    must((char *)again[3] == (char *)objects[19] + KIB);
    slab_check(&cache);
}

/* So that slabs of which little is out become empty. */
CASE(the_fullest_slab_is_taken_from_first)
{
    start(1 * KIB);
    take(objects, 3 * OBJECTS);
    give(objects, 40);               /* list 2 */
    give(objects + OBJECTS, 20);     /* list 1 */
    give(objects + 2 * OBJECTS, 60); /* list 3 */
    void *again[OBJECTS];
    take(again, 20);
    for (int i = 0; i < 20; i++)
        must(slab_of(again[i]) == slab_of(objects[OBJECTS]));
    take(again, 40);
    for (int i = 0; i < 40; i++)
        must(slab_of(again[i]) == slab_of(objects[0]));
    take(again, 1);
    must(slab_of(again[0]) == slab_of(objects[2 * OBJECTS]));
    must_be(cache.alloc_slab, 3);
    slab_check(&cache);
}

CASE(sizes_and_indices_agree)
{
    static const uint32_t sizes[] = {8, 16, 24, 40, 56, 112, 1000, 1024, 3072, 8192, 8200, 14336, 65536, 131072};
    for (size_t i = 0; i < array_size(sizes); i++) {
        memset(&cache, 0, sizeof(cache));
        if (!i)
            start(sizes[i]);
        else
            start_cache(sizes[i]);
        must_be(cache.slices, sizes[i] <= 8192 ? 1 : 4);
        must_be(cache.objects, cache.slices * SLICE_SIZE / sizes[i]);
        take(objects, cache.objects);
        for (uint32_t k = 0; k < cache.objects; k++) {
            char *object = objects[k];
            uint32_t slice, index;
            must(slab_object(&cache, object) == object && slab_object(&cache, object + sizes[i] - 1) == object);
            must(slab_locate(&cache, object + sizes[i] / 2, &slice, &index));
            must_be(index, k);
            must_be(slice, slice_of(objects[0]));
            must_be(slab_room(&cache, object + 3), sizes[i] - 3);
        }
        char *end = (char *)objects[0] + (size_t)cache.objects * sizes[i];
        uint32_t slice, index;
        if (slice_of(end) < slice_of(objects[0]) + cache.slices)
            must(!slab_locate(&cache, end, &slice, &index));
        give(objects, cache.objects);
        slab_shrink(&cache);
    }
}

CASE(slices_know_their_cache)
{
    start(14336);
    take(objects, 1);
    uint32_t slice = (uint32_t)slice_of(objects[0]);
    for (uint32_t i = 0; i < 4; i++) {
        must_be(*slice_id(slice + i), cache.id);
        must(descriptor_of_slice(slice + i) == slab_of(objects[0]));
    }
    must_be(*slice_id(slice + 4), 0);
    give(objects, 1);
    slab_shrink(&cache);
    for (uint32_t i = 0; i < 4; i++)
        must_be(*slice_id(slice + i), 0);
}

/* ---- faults ---- */

CASE(a_double_free_is_found)
{
    start(1 * KIB);
    take(objects, 4);
    void *back[] = {objects[1], objects[2], objects[1], objects[3]};
    struct slab_report report;
    must(slab_put(&cache, back, 4, &report));
    must_be(report.fault, SLAB_DOUBLE_FREE);
    must(report.object == objects[1]);
    must_be(slab_out(&cache), 2); /* what came before the fault is free, what came after is not */
    must(slab_is_free(&cache, objects[1]) && slab_is_free(&cache, objects[2]) && !slab_is_free(&cache, objects[3]));
    slab_check(&cache);
}

CASE(an_object_that_was_never_handed_out)
{
    start(1 * KIB);
    take(objects, 4);
    void *next = (char *)objects[3] + KIB;
    struct slab_report report;
    must(slab_is_free(&cache, next));
    must(slab_put(&cache, &next, 1, &report));
    must_be(report.fault, SLAB_DOUBLE_FREE);
    slab_check(&cache);
}

CASE(an_interior_pointer_is_found)
{
    start(24);
    take(objects, 4);
    void *inside = (char *)objects[2] + 8;
    struct slab_report report;
    must(slab_put(&cache, &inside, 1, &report));
    must_be(report.fault, SLAB_INTERIOR);
    must(report.object == inside);
    must_be(slab_out(&cache), 4);
}

/* ---- slabs that come and go ---- */

CASE(one_empty_slab_is_kept_in_a_small_heap)
{
    start(1 * KIB);
    take(objects, 3 * OBJECTS);
    give(objects, 3 * OBJECTS);
    must_be(cache.slabs, 1);
    must_be(cache.empty, 1);
    must_be(region_stats.slab_slices, 1);
    must_be(cache.free_slab, 2);
    slab_shrink(&cache);
    must_be(cache.slabs + cache.empty, 0);
    must_be(region_stats.slab_slices, 0);
    must_be(slab_out(&cache), 0);
    slab_check(&cache);
}

/* In a larger heap each class would keep one otherwise; where as much is out as a slab holds, it is wanted again. */
CASE(no_empty_slab_is_kept_where_little_is_out)
{
    bool zeroed;
    start(1 * KIB);
    must(region_alloc_slab(0, SMALL_HEAP, &zeroed) != SLICE_NONE);
    take(objects, 2 * OBJECTS);
    give(objects, OBJECTS);
    must_be(cache.slabs, 2);
    must_be(cache.empty, 1);
    slab_shrink(&cache);
    give(objects + OBJECTS, OBJECTS);
    must_be(cache.slabs, 0);
    slab_check(&cache);
}

CASE(fewer_where_memory_is_refused)
{
    start_region(8 * MIB, 1000);
    start_cache(1 * KIB);
    take(objects, 1);
    os_room = 0;
    unsigned n = 1, got;
    while ((got = slab_take_ascending(&cache, objects + n, 100)))
        n += got;
    must_be(n, (SLICES_START - 8) * OBJECTS); /* what has memory, but for the reserve */
    must_be(slab_out(&cache), n);
    slab_check(&cache);
    os_room = SIZE_MAX;
    take(objects + n, 100);
}

CASE(nothing_below_a_handler)
{
    struct slab_report report;
    start(1 * KIB);
    take(objects, 10);
    BELOW_HANDLER(NUMBER, {
        must_be(slab_take(&cache, objects + 10, 1), 0);
        must_be(slab_try_take(&cache, objects + 10, 1), 0);
        must(!slab_put(&cache, objects, 10, &report));
    });
    must_be(slab_out(&cache), 10);
    give(objects, 10);
}

CASE(another_nodes_slabs_are_only_those_at_hand)
{
    start(1 * KIB);
    must_be(slab_try_take(&cache, objects, 5), 0);
    must_be(cache.alloc_slab, 0);
    take(objects, OBJECTS);
    give(objects, 3);
    must_be(slab_try_take(&cache, objects, 5), 3);
    must_be(cache.slabs, 1);
    for (int i = 1; i < 3; i++)
        must(objects[i] < objects[i - 1]);
}

static unsigned built;

static void build(void *object)
{
    must(!lock_held_by_self(cache.lock)); /* it may allocate */
    must_be((uintptr_t)object % KIB, 16);
    built++;
}

CASE(fresh_objects_are_constructed_once)
{
    start(1 * KIB);
    cache.ctor = build;
    cache.lead = 16;
    take(objects, 10);
    must_be(built, 10);
    give(objects, 10);
    take(objects, 12);
    must_be(built, 12);
}

static unsigned created, released;
static bool refuses;

static bool watch_created(struct slab_cache *of, uint32_t slice)
{
    must(of == &cache && !lock_held_by_self(cache.lock) && !*slice_id(slice));
    created++;
    return !refuses;
}

static void watch_released(struct slab_cache *of, uint32_t slice)
{
    must(of == &cache && *slice_id(slice) == cache.id);
    released++;
}

CASE(slabs_are_watched)
{
    start(1 * KIB);
    hooks.slab_created = watch_created;
    hooks.slab_released = watch_released;
    cache.watched = 1;
    take(objects, 1);
    must_be(created, 1);
    give(objects, 1);
    slab_shrink(&cache);
    must_be(released, 1);
    refuses = true;
    must_be(slab_take(&cache, objects, 1), 0);
    must_be(region_stats.slab_slices, 0);
    must_be(cache.slabs, 0);
}

static unsigned kicks;

static void kick(void)
{
    kicks++;
}

/* Slabs of a typesafe cache stay what they are until a grace period is over. */
CASE(typesafe_slabs_go_late)
{
    start(1 * KIB);
    hooks.slab_retired = kick;
    cache.typesafe = true;
    take(objects, 2 * OBJECTS);
    give(objects, 2 * OBJECTS);
    slab_shrink(&cache);
    must_be(kicks, 2);
    must_be(slab_retired_count(), 2);
    must_be(region_stats.slab_slices, 2);
    must(slab_retired_collect());
    take(objects, OBJECTS);
    give(objects, OBJECTS);
    slab_shrink(&cache); /* retired after the grace period began */
    slab_retired_release();
    must_be(region_stats.slab_slices, 1);
    must(slab_retired_collect());
    slab_retired_release();
    must_be(region_stats.slab_slices, 0);
    must(!slab_retired_collect());
}

/* ---- descriptors ---- */

CASE(descriptors_are_used_again_by_size)
{
    start(1 * KIB);
    struct slab *small = descriptor_alloc(64), *large = descriptor_alloc(8192);
    uint32_t of_small = small->reference, of_large = large->reference;
    must_be(large->words, 128);
    memset(large->bits, 0xff, 128 * 8);
    descriptor_free(small);
    descriptor_free(large);
    large = descriptor_alloc(8192);
    must_be(large->reference, of_large);
    for (int i = 0; i < 128; i++)
        must_be(large->bits[i], 0);
    must(descriptor_of(of_large) == large);
    must_be(descriptor_alloc(1)->reference, of_small);
    must(descriptor_alloc(1)->reference != of_small);
}

/* The first ones lie in the bootstrap tables; the table of the others grows. What cannot be had is not used up. */
CASE(descriptors_that_are_refused)
{
    start(1 * KIB);
    size_t first = (space.slabs_first_end - space.slabs_first) / (17 * 64);
    for (size_t i = 0; i < first; i++)
        must(descriptor_alloc(8192)->reference >= space.slabs_first / 64);
    must_be(os_count(OS_EXTEND), 0);
    os_refuse(OS_EXTEND, 1, 3);
    for (int i = 0; i < 3; i++)
        must(!descriptor_alloc(8192));
    must_be(region_stats.slab_slices, 0);
    must_be(descriptor_alloc(8192)->reference, 1);
    must_be(descriptor_alloc(8192)->reference, 1 + 17);
}

CASE(a_slab_without_a_descriptor)
{
    start(8);
    os_refuse(OS_EXTEND, 1, OS_ALWAYS);
    while (slab_take(&cache, objects, SLAB_BATCH)) {
    }
    uint64_t slices = region_stats.slab_slices;
    must(!slab_take(&cache, objects, 1));
    must_be(region_stats.slab_slices, slices);
    slab_check(&cache);
    os_grant();
    must_be(slab_take(&cache, objects, 1), 1);
}

/* ---- random order ---- */

CASE(shuffled_objects_come_once_each)
{
    static bool seen[8192];
    start(16);
    slab_cache_shuffle(&cache, 16);
    must(cache.shuffle != NULL);
    uint32_t in_order = 0;
    take(objects, cache.objects);
    for (uint32_t i = 0; i < cache.objects; i++) {
        size_t index = ((uintptr_t)objects[i] - (uintptr_t)slab_start(slab_of(objects[0]))) / 16;
        must(index < cache.objects && !seen[index]);
        seen[index] = true;
        in_order += i && (char *)objects[i] == (char *)objects[i - 1] + 16;
    }
    must(in_order < cache.objects / 100);
    give(objects, cache.objects);
    slab_check(&cache);
    slab_shrink(&cache);
    slab_cache_forget(&cache);
    must(os_covered(OS_UNMAP, (void *)os_entry(OS_MAP, 0)->at, os_entry(OS_MAP, 0)->size));
}

CASE(slabs_of_one_cache_begin_in_different_places)
{
    start(1 * KIB);
    slab_cache_shuffle(&cache, KIB);
    unsigned same = 0;
    for (int i = 0; i < 16; i++)
        take(objects + i * OBJECTS, OBJECTS);
    for (unsigned i = 1; i < 16; i++)
        same += (uintptr_t)objects[i * OBJECTS] % SLICE_SIZE == (uintptr_t)objects[0] % SLICE_SIZE;
    must(same < 4);
}

CASE(faults_are_found_in_shuffled_slabs)
{
    struct slab_report report;
    start(1 * KIB);
    slab_cache_shuffle(&cache, KIB);
    take(objects, 5);
    char *first = slab_start(slab_of(objects[0]));
    unsigned faults = 0;
    for (unsigned i = 0; i < OBJECTS; i++) {
        void *object = first + i * KIB;
        must(slab_put(&cache, &object, 1, &report));
        faults += report.fault == SLAB_DOUBLE_FREE;
    }
    must_be(faults, OBJECTS - 5);
    must_be(slab_out(&cache), 0);
}

CASE(in_order_where_there_is_no_memory_for_another)
{
    start(1 * KIB);
    os_refuse(OS_MAP, 1, 1);
    slab_cache_shuffle(&cache, KIB);
    must(!cache.shuffle);
    take(objects, 2);
    must((char *)objects[1] == (char *)objects[0] + KIB);
}

/* ---- staged memory ---- */

static void start_staged(uint32_t size)
{
    start_staged_region(0, 1000);
    start_cache(size);
}

CASE(staged_slabs_are_committed_piece_by_piece)
{
    start_staged(1 * KIB);
    take(objects, 3);
    const struct slab *slab = slab_of(objects[0]);
    char *start = slab_start(slab);
    must_be(slab->committed, os_page);
    must(writable(start) && writable(start + os_page - 1) && !writable(start + os_page));
    take(objects + 3, 2);
    must_be(slab->committed, round_up(5 * KIB, os_page));
    take(objects + 5, 27);
    must_be(slab->committed, round_up(32 * KIB, os_page));
    must(writable(start + slab->committed - 1) && !writable(start + slab->committed));
    take(objects + 32, OBJECTS); /* into the next slab */
    must_be(slab->committed, SLICE_SIZE);
    for (unsigned i = 0; i < 32 + OBJECTS; i++)
        must(writable(objects[i]) && writable((char *)objects[i] + KIB - 1));
    give(objects, 32 + OBJECTS);
    slab_check(&cache);
}

CASE(larger_heaps_commit_whole_slabs)
{
    bool zeroed;
    start_staged(1 * KIB);
    must(region_alloc_slab(0, SMALL_HEAP, &zeroed) != SLICE_NONE);
    take(objects, 1);
    must_be(slab_of(objects[0])->committed, SLICE_SIZE);
}

/* A larger piece than needed is tried first, and then only as much as one object needs. */
CASE(a_refused_commit_leaves_what_is_committed)
{
    if (os_page > 4096)
        _exit(CASE_SKIPPED); /* the figures are those of pages with four objects */
    start_staged(1 * KIB);
    take(objects, 4);
    os_refuse(OS_COMMIT, 1, OS_ALWAYS);
    must_be(slab_take_ascending(&cache, objects + 4, 10), 0);
    slab_check(&cache);
    must_be(cache.slabs, 1);
    os_grant();
    os_refuse(OS_COMMIT, 1, 1);
    must_be(slab_take_ascending(&cache, objects + 4, 10), 10);
    os_refuse(OS_COMMIT, 1, 2); /* both sizes of the first attempt */
    must_be(slab_take_ascending(&cache, objects + 14, 10), 10);
    for (unsigned i = 0; i < 24; i++)
        must(writable(objects[i]));
    give(objects, 24);
    must_be(slab_out(&cache), 0);
    slab_check(&cache);
}

CASE(returned_objects_need_no_commit)
{
    start_staged(1 * KIB);
    take(objects, 2 * OBJECTS);
    give(objects, 2 * OBJECTS);
    take(objects, OBJECTS + 4); /* one slab is full, and the next has four objects out */
    give(objects, 10);
    os_refuse(OS_COMMIT, 1, OS_ALWAYS);
    unsigned n = slab_take_ascending(&cache, objects, 20);
    must(n >= 10);
    slab_check(&cache);
}

CASE(a_slab_in_random_order_is_committed_at_once)
{
    start_staged_region(0, 1000);
    slab_cache_init(&cache, NUMBER, 1 * KIB);
    slab_cache_shuffle(&cache, 1 * KIB);
    cache.size = 1 * KIB;
    take(objects, 1);
    must_be(slab_of(objects[0])->committed, SLICE_SIZE);
}
