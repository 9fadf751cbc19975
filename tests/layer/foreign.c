/* Other mappings where the region should grow: holes between them are found and used. */
#include "layer.h"
#include "memory/region/state.h"

#include <sys/mman.h>

#define CHUNK 512u /* slices of a chunk in a region of the usual size */

static struct arena *slabs(void)
{
    return &region.arenas[ARENA_SLAB];
}

static struct arena *large(void)
{
    return &region.arenas[ARENA_LARGE];
}

/* Holes that are too small are passed, and the rest of the region stays for later. */
CASE(in_the_next_hole_that_is_large_enough)
{
    start_region(0, 0);
    os_block(slice_address(SLICES_START), 4096);
    for (uint32_t slice = CHUNK + 50; slice < 3 * CHUNK; slice += 50)
        os_block(slice_address(slice), 4096);
    must_be(arena_take_frontier(large(), 100, 1),
            1536); /* the first slice behind the huge page of the last of them */
    must(region_end() <= 4 * CHUNK);
}

/* All of a hole serves, up to the mapping behind it, although growth by a step meets that mapping. */
CASE(a_hole_is_used_to_its_end)
{
    start_region(0, 0);
    os_block(slice_address(SLICES_START + 5), 4096);
    must_be(arena_take_frontier(slabs(), SLICES_START, 1), 0);
    for (uint32_t i = 0; i < 5; i++)
        must_be(arena_take_frontier(slabs(), 1, 1), SLICES_START + i);
    must_be(arena_take_frontier(slabs(), 1, 1), CHUNK);
}

/* While everything behind is taken, few requests look for a hole; once a mapping has gone, one of them finds it. */
CASE(a_hole_that_opens_is_found)
{
    start_region(GIB, 0);
    size_t rest = GIB - SLICES_START * SLICE_SIZE;
    char *behind = slice_address(SLICES_START);
    must(mmap(behind, rest, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0) ==
         behind);
    must_be(arena_take_frontier(slabs(), SLICES_START, 1), 0);
    for (int i = 0; i < 2000; i++)
        must_be(arena_take_frontier(slabs(), 1, 1), SLICE_NONE);
    must(region_crowded());
    must(os_count(OS_EXTEND) < 20);
    must(!munmap(behind + rest / 2, rest / 2));
    uint32_t slice = SLICE_NONE;
    for (int i = 0; i < 300 && slice == SLICE_NONE; i++)
        slice = arena_take_frontier(slabs(), 1, 1);
    must(slice != SLICE_NONE && (char *)slice_address(slice) >= behind + rest / 2);
    must(arena_take_frontier(slabs(), 1, 1) == slice + 1 && !region_crowded());
}
