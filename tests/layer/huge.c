/* Huge pages by themselves: where they are requested, where they are advised against, and what slow ones lead to. */
#include "layer.h"
#include "slices.h"
#include "platform/os/hooks.h"
#include "memory/region/huge.h"
#include "memory/region/state.h"

#define CHUNK 512u /* slices of a chunk in a region of the usual size */

static uint64_t huge_ns, huge_cost;

static uint64_t fake_clock(void)
{
    huge_ns += huge_cost;
    return huge_ns;
}

static void start_huge(bool wanted)
{
    start_region(0, 1000);
    huge_init(wanted);
    hooks.huge_clock = fake_clock;
}

static unsigned huge_pages(enum huge_advice pages)
{
    unsigned n = 0;
    for (uint32_t slice = 0; slice < region_end(); slice += HUGE_PAGE_SLICES)
        n += slice_at(slice)->huge_advice == pages;
    return n;
}

CASE(small_programs_have_small_pages)
{
    start_huge(true);
    for (int i = 0; i < 255; i++)
        slab(1);
    must_be(os_count(OS_HUGE), 0);
    must(os_covered(OS_PLAIN, slice_address(SLICES_START), SLICE_SIZE));
    must_be(huge_slices(), 0);
}

CASE(large_heaps_of_slabs_have_huge_pages)
{
    start_huge(true);
    for (int i = 0; i < 512; i++)
        slab(1);
    must(os_count(OS_HUGE) > 0);
    must(huge_slices() >= 128 && huge_slices() <= 256 + CHUNK);
    must_be(huge_slices(), huge_pages(HUGE_ADVISED) * HUGE_PAGE_SLICES);
    must_be(slice_at(0)->huge_advice, HUGE_NOT_ADVISED); /* what was there before stays */
    for (unsigned i = 0; i < os_count(OS_HUGE); i++)
        must_be(os_entry(OS_HUGE, i)->at % (HUGE_PAGE_SLICES * SLICE_SIZE), 0);
}

CASE(none_where_they_are_not_wanted)
{
    start_huge(false);
    for (int i = 0; i < 600; i++)
        slab(1);
    must_be(os_count(OS_HUGE), 0);
}

/* Large blocks: none for the first 64 MiB, and beyond these the system's policy decides. */
CASE(large_blocks_leave_it_to_the_system)
{
    start_huge(true);
    uint32_t slice = block(1000);
    must(os_covered(OS_PLAIN, slice_address(slice), SLICE_SIZE) || os_count(OS_PLAIN));
    must(os_covered(OS_PLAIN, slice_address(slice + 999), SLICE_SIZE));
    uint32_t more = block(4000);
    must(!os_covered(OS_PLAIN, slice_address(more + 3999), SLICE_SIZE));
    must_be(os_count(OS_HUGE), 0);
}

/* A range that is returned in part would be filled again by khugepaged. */
CASE(broken_huge_pages_are_advised_against)
{
    static uint32_t slices[700];
    start_huge(true);
    for (int i = 0; i < 700; i++)
        slices[i] = slab(1);
    os_clear();
    uint32_t huge_page = (uint32_t)round_up(slices[500], HUGE_PAGE_SLICES);
    must_be(slice_at(huge_page)->huge_advice, HUGE_ADVISED);
    region_free(huge_page + 3);
    region_purge(true);
    must_be(slice_at(huge_page)->huge_advice, HUGE_ADVISED_AGAINST);
    must_be(os_entry(OS_PLAIN, 0)->at, slice_address(huge_page));
    must_be(os_entry(OS_PLAIN, 0)->size, HUGE_PAGE_SLICES * SLICE_SIZE);
    must_be(os_count(OS_PLAIN), 1);
    uint32_t next = huge_page + HUGE_PAGE_SLICES; /* as a whole: it may be huge again */
    for (uint32_t slice = next; slice < next + HUGE_PAGE_SLICES; slice++)
        region_free(slice);
    region_purge(true);
    must_be(slice_at(next)->huge_advice, HUGE_ADVISED);
    must_be(os_count(OS_PLAIN), 1);
}

/* Each advice may split a mapping, so it ends for all where there were too many. */
CASE(too_many_broken_huge_pages_end_it)
{
    static uint32_t slices[1100 * HUGE_PAGE_SLICES];
    start_huge(true);
    for (uint32_t i = 0; i < array_size(slices); i++)
        slices[i] = slab(1);
    must(huge_pages(HUGE_ADVISED) > 1026);
    os_clear();
    uint32_t broken = 0;
    for (uint32_t i = 5; i < array_size(slices); i += HUGE_PAGE_SLICES)
        if (slice_at(slices[i] & ~(HUGE_PAGE_SLICES - 1))->huge_advice == HUGE_ADVISED) {
            region_free(slices[i]);
            region_purge(true);
            broken++;
        }
    must(broken > 1025);
    must_be(os_count(OS_PLAIN), 1025);
    must_be(os_entry(OS_PLAIN, 1024)->at, slice_address(0));
    must_be(os_entry(OS_PLAIN, 1024)->size, (size_t)region_end() << SLICE_SHIFT);
}

/* Where the first touch of a huge page is slow, the next ranges get small pages, more of them each time. */
CASE(slow_huge_pages_are_skipped)
{
    start_huge(true);
    for (int i = 0; i < 512; i++)
        slab(1);
    must_be(huge_pages(HUGE_ADVISED_AGAINST), 0);
    huge_cost = 5000000; /* 5 ms for a range of 2 MiB */
    uint32_t slice;
    for (int i = 0; i < 4 * (int)HUGE_PAGE_SLICES; i++)
        slice = slab(1);
    unsigned skipped = huge_pages(HUGE_ADVISED_AGAINST);
    must(skipped >= 1);
    for (int i = 0; i < 20 * (int)HUGE_PAGE_SLICES; i++)
        slice = slab(1);
    must(huge_pages(HUGE_ADVISED_AGAINST) > 2 * skipped);
    (void)slice;
}

CASE(fast_huge_pages_are_not)
{
    start_huge(true);
    huge_cost = 300000;
    for (int i = 0; i < 1024; i++)
        slab(1);
    must_be(huge_pages(HUGE_ADVISED_AGAINST), 0);
    must(huge_slices() > 512);
}

/* The surplus of slabs goes in whole huge pages while there are any, so that no huge page is broken up. */
CASE(slabs_return_whole_huge_pages)
{
    static uint32_t slices[1600];
    start_huge(true);
    for (int i = 0; i < 1600; i++)
        slices[i] = slab(1);
    must(huge_pages(HUGE_ADVISED) > 40);
    os_clear();
    for (int i = 0; i < 1600; i++) /* as sheaves are flushed: not quite in order */
        region_free(slices[i ^ 5]);
    must(os_count(OS_DISCARD) > 0);
    for (unsigned i = 0; i < os_count(OS_DISCARD); i++) {
        must_be(os_entry(OS_DISCARD, i)->at % (HUGE_PAGE_SLICES * SLICE_SIZE), 0);
        must_be(os_entry(OS_DISCARD, i)->size % (HUGE_PAGE_SLICES * SLICE_SIZE), 0);
    }
    must_be(huge_pages(HUGE_ADVISED_AGAINST), 0);
    must(warm_of(ARENA_SLAB) <= 32 + 2 * HUGE_PAGE_SLICES);
}

CASE(unmapped_huge_pages_are_forgotten)
{
    static uint32_t slices[1024];
    start_huge(true);
    for (int i = 0; i < 1024; i++)
        slices[i] = slab(1);
    uint64_t before = huge_slices();
    for (int i = 1023; i >= 512; i--)
        region_free(slices[i]);
    region_purge(true);
    must(os_count(OS_UNMAP) > 0);
    must(huge_slices() < before);
    must_be(huge_slices(), huge_pages(HUGE_ADVISED) * HUGE_PAGE_SLICES);
}
