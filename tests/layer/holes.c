/* Holes in slabs: which pages are returned to the system, when, and when not. */
#include "slabs.h"
#include "memory/slab/holes.h"

/* The figures are those of slabs of 16 pages; with pages of 64 KiB a slab of one slice has no hole. */
BEFORE_CASES(argv)
{
    if (os_page > 4096)
        exit(CASE_SKIPPED);
}

/* A slab of which the objects with these numbers are out; `at` is where its 64 objects are noted. */
static void sparse_slab(unsigned at, unsigned a, unsigned b)
{
    take(objects + at, OBJECTS);
    for (unsigned i = 0; i < OBJECTS; i++)
        if (i != a && i != b)
            give(objects + at + i, 1);
}

CASE(free_pages_of_sparse_slabs_are_returned)
{
    start(1 * KIB);
    sparse_slab(0, 0, 63);
    memset(objects[63], 7, KIB);
    must_be(slab_holes(&cache), 14 * PAGE);
    must_be(os_count(OS_DISCARD), 1);
    must_be(os_entry(OS_DISCARD, 0)->at, (char *)objects[0] + PAGE);
    must_be(os_entry(OS_DISCARD, 0)->size, 14 * PAGE);
    must_be(slab_hole_bytes(), 14 * PAGE);
    must(*(char *)objects[63] == 7);
    slab_check(&cache);
    must_be(slab_holes(&cache), 0); /* once for each slab */
}

CASE(pages_that_an_object_reaches_into_stay)
{
    start(3072);
    take(objects, cache.objects);
    for (unsigned i = 0; i < cache.objects; i++)
        if (i != 1) /* bytes 3072 to 6143: pages 0 and 1 */
            give(objects + i, 1);
    must_be(slab_holes(&cache), 14 * PAGE);
    must_be(os_entry(OS_DISCARD, 0)->at, (char *)objects[0] + 2 * PAGE);
}

CASE(slabs_of_which_much_is_out_have_no_holes)
{
    start(1 * KIB);
    take(objects, OBJECTS);
    give(objects + 9, OBJECTS - 9); /* one more than is worth it */
    must_be(slab_holes(&cache), 0);
    give(objects, 1);
    must(slab_holes(&cache) > 0);
}

CASE(empty_slabs_have_no_holes)
{
    start(1 * KIB);
    take(objects, 1);
    give(objects, 1);
    must_be(cache.empty, 1);
    must_be(slab_holes(&cache), 0);
}

CASE(slabs_with_holes_serve_where_there_is_no_other)
{
    start(1 * KIB);
    sparse_slab(0, 0, 63);
    must(slab_holes(&cache));
    must_be(slab_of(objects[0])->list, SLAB_HOLES);
    take(objects + 64, 1);
    must(slab_of(objects[64]) == slab_of(objects[0]));
    must_be(cache.missed, 1);
    must_be(slab_of(objects[0])->holes, 0);
}

CASE(an_emptier_slab_comes_before_one_with_holes)
{
    void *object;
    start(1 * KIB);
    take(objects, 2 * OBJECTS);
    give(objects + 2, OBJECTS - 2);
    must(slab_holes(&cache));
    must_be(slab_of(objects[0])->list, SLAB_HOLES);
    give(objects + OBJECTS + 1, OBJECTS - 1); /* one object is out */
    take(&object, 1);
    must(slab_of(object) == slab_of(objects[OBJECTS]));
    must_be(cache.missed, 0);
}

/* Half of what was out came back: there is more to return. */
CASE(holes_again_when_half_came_back)
{
    start(1 * KIB);
    take(objects, OBJECTS);
    give(objects + 4, OBJECTS - 4 - 4); /* 0 to 3 and 60 to 63: a page at each end */
    must_be(slab_holes(&cache), 14 * PAGE);
    give(objects, 3);
    must_be(slab_holes(&cache), 0);
    give(objects + 3, 1);
    must_be(slab_holes(&cache), 15 * PAGE);
}

/* Where holes are soon filled again the cache is left alone, longer each time. */
CASE(holes_that_are_missed_are_left_alone)
{
    unsigned looks[4] = {0};
    start(1 * KIB);
    for (int round = 0; round < 4; round++) {
        sparse_slab(0, 0, 63);
        while (!slab_holes(&cache))
            must(++looks[round] < 1000);
        take(objects + 64, 62); /* fills it */
        give(objects, 1);
        give(objects + 63, 1);
        give(objects + 64, 62);
        slab_shrink(&cache);
    }
    must_be(looks[0], 0);
    must(looks[1] >= 2 && looks[2] > looks[1] && looks[3] > looks[2]);
}

CASE(refused_holes_are_not_counted)
{
    start(1 * KIB);
    sparse_slab(0, 0, 63);
    os_refuse(OS_DISCARD, 1, 1);
    must_be(slab_holes(&cache), 0);
    must_be(slab_hole_bytes(), 0);
    slab_check(&cache);
    take(objects + 64, 62);
    must(slab_of(objects[64]) == slab_of(objects[0]));
}

static void free_the_rest(enum os_call call, void *at, size_t size)
{
    (void)at, (void)size;
    if (call != OS_DISCARD || os_count(OS_DISCARD))
        return;
    must(!lock_held_by_self(cache.lock));
    give(objects, 1);
    give(objects + 63, 1);
    take(objects + 64, 1);
    must(slab_of(objects[64]) != slab_of(objects[0])); /* nothing is taken from a slab whose pages are leaving */
}

CASE(a_slab_that_becomes_empty_while_its_pages_leave)
{
    start(1 * KIB);
    sparse_slab(0, 0, 63);
    os_hook = free_the_rest;
    must_be(slab_holes(&cache), 14 * PAGE);
    os_hook = NULL;
    must_be(slab_out(&cache), 1);
    slab_check(&cache);
    give(objects + 64, 1);
    slab_shrink(&cache);
    must_be(cache.slabs, 0);
    must_be(region_stats.slab_slices, 0);
}
