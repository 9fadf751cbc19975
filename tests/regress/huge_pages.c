/* Which pages of the region are huge, and which are freed when realloc() shrinks a block. */
#define _GNU_SOURCE
#include "../cases.h"
#include "cache/kmem_cache.h"
#include "memory/region/huge.h"
#include "memory/region/region.h"
#include "sheaf/malloc.h"
#include "platform/os/hooks.h"

#include <sys/mman.h>

#define MIB (1ul << 20)

/* Returns the advice in effect for the mapping of p: 'h' huge pages, 'n' no huge pages, '-' none. */
static char advice_for(const void *p)
{
    char line[512];
    bool here = false;
    FILE *file = fopen("/proc/self/smaps", "r");
    must(file);
    while (fgets(line, sizeof(line), file)) {
        unsigned long from, to;
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2 && strchr(line, ' ') > strchr(line, '-'))
            here = from <= (uintptr_t)p && (uintptr_t)p < to;
        if (!here || strncmp(line, "VmFlags:", 8) != 0)
            continue;
        fclose(file);
        return strstr(line, " hg") ? 'h' : strstr(line, " nh") ? 'n' : '-';
    }
    _exit(CASE_SKIPPED); /* this kernel does not show VmFlags */
}

enum { N = 20000, SIZE = 4096 }; /* 78 MiB */
static char *block[N];

static uint64_t ticks, tick;

/* A clock that advances by `tick` ns at each call, so that the first touch of a range seems to take as long. */
static uint64_t ticking(void)
{
    return ticks += tick;
}

/* Kernels with PREEMPT_RT have no huge pages. */
static bool kernel_has_huge_pages(void)
{
    void *at = mmap(NULL, 4 * MIB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(at != MAP_FAILED);
    bool has = madvise(at, 4 * MIB, MADV_HUGEPAGE) == 0;
    must(munmap(at, 4 * MIB) == 0);
    return has;
}

static void grow(void)
{
    if (!kernel_has_huge_pages())
        _exit(CASE_SKIPPED);
    hooks.huge_clock = ticking;
    must(sheaf_malloc(1));
    for (size_t i = 0; i < N; i++)
        must((block[i] = sheaf_malloc(SIZE)));
}

CASE(only_large_heaps_get_huge_pages)
{
    grow();
    must(advice_for(block[0]) == 'n'); /* the first 16 MiB get small pages */
    must(advice_for(block[N - 1]) == 'h' && huge_slices() << SLICE_SHIFT > 32 * MIB);
}

/* If huge pages are expensive, most ranges get small pages, and huge pages are tried ever less often. */
CASE(expensive_huge_pages_are_avoided)
{
    tick = 1000000000000; /* small pages seem as expensive at first, so avoiding huge ones takes a while */
    grow();
    must(huge_slices() << SLICE_SHIFT < 24 * MIB);
    must(advice_for(block[N - 1]) == 'n');
}

/* Such a range must not stay huge: khugepaged would collapse it and make the returned memory resident again. */
CASE(a_range_returned_in_part_is_no_longer_huge)
{
    grow();
    uint32_t huge_page =
        (uint32_t)slice_of(block[N - 1]) / HUGE_PAGE_SLICES * HUGE_PAGE_SLICES - 4 * HUGE_PAGE_SLICES;
    uint64_t before = huge_slices();
    must(slice_at(huge_page)->huge_advice == HUGE_ADVISED && advice_for(slice_address(huge_page)) == 'h');
    for (size_t i = 0; i < N; i++) {
        uint32_t slice = (uint32_t)slice_of(block[i]);
        if (slice >= huge_page + 8 && slice < huge_page + 24)
            sheaf_free(block[i]);
    }
    sheaf_malloc_trim();
    must(region_slice_clean(huge_page + 16)); /* it was returned to the system */
    must(slice_at(huge_page)->huge_advice == HUGE_ADVISED_AGAINST && advice_for(slice_address(huge_page)) == 'n');
    must(advice_for(slice_address(huge_page + HUGE_PAGE_SLICES)) == 'h' && huge_slices() < before);
}

/* Unmapped ranges do not count as huge, and are advised again when they are mapped again. */
CASE(unmapped_ranges_are_advised_again)
{
    grow();
    for (size_t i = 0; i < N; i++)
        sheaf_free(block[i]);
    sheaf_malloc_trim();
    must(huge_slices() << SLICE_SHIFT < 8 * MIB);
    grow();
    must(advice_for(block[N - 1]) == 'h' && huge_slices() << SLICE_SHIFT > 32 * MIB);
}

/* A large block that shrinks stays at its address, and its end is freed. */
CASE(large_blocks_shrink_in_place)
{
    char *p = sheaf_malloc(64 * MIB);
    must(p);
    memset(p, 7, 64 * MIB);
    uint64_t before = region_stats.large_slices;
    must(sheaf_realloc(p, 8 * MIB) == p);
    must(sheaf_malloc_usable_size(p) == 8 * MIB && p[8 * MIB - 1] == 7);
    must(before - region_stats.large_slices == 56 * MIB >> SLICE_SHIFT);
    must(slice_at(slice_of(p) + (8 * MIB >> SLICE_SHIFT))->kind != SLICE_INSIDE ||
         region_end() <= slice_of(p) + 1024);
    char *other = sheaf_malloc(16 * MIB);
    must(other > p && other < p + 64 * MIB); /* it reuses the freed end */
    must(sheaf_realloc(p, 8 * MIB - 4096) == p);
    sheaf_free(other);
    must(sheaf_realloc(p, 60 * MIB) == p && p[8 * MIB - 1] == 7);
    sheaf_free(p);
}
