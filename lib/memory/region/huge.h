/*
 * Huge pages for slabs. At first the region is advised against them, because the first byte of a table or of a
 * small program must not cost 2 MiB. Once slabs use HUGE_AFTER slices, everything that they grow into is advised to
 * be huge. It is filled from start to end, so that at most one huge page is partly used, at most an eighth of what
 * slabs use. Large blocks beyond the first 64 MiB follow the system's policy: they get huge pages where it is
 * "always", as with other allocators.
 *
 * khugepaged would collapse a range of 2 MiB that was returned in part into a huge page again, and make the
 * returned part resident. Such a range is therefore advised against huge pages; when that would take too many
 * mappings, the whole region is.
 */
#ifndef SHEAF_REGION_HUGE_H
#define SHEAF_REGION_HUGE_H

#include "platform/os/compiler.h"

/* Must be called before the other functions. With `wanted` false, huge pages are never requested. */
void huge_init(bool wanted);

/*
 * Change what huge_init() set. With `wanted` false, what has huge pages keeps them until it is returned. Takes the
 * region's lock; does nothing in a signal handler that interrupted its holder.
 */
void huge_set(bool wanted);

/* What was advised for an aligned range of 2 MiB, in the struct of its first slice. */
enum huge_advice {
    HUGE_NOT_ADVISED,
    HUGE_ADVISED,         /* huge pages were requested */
    HUGE_ADVISED_AGAINST, /* they were, and are not any more */
};

struct arena;

/* Slabs now use `in_use` slices, and this arena may have grown. The caller holds the region's lock. */
void huge_grown(uint64_t in_use, const struct arena *arena);

/* Slices [from, to) of an arena were mapped, or unmapped. The caller holds the region's lock. */
void huge_mapped(const struct arena *arena, uint32_t from, uint32_t to);
void huge_unmapped(uint32_t from, uint32_t to);

/*
 * If a range of 2 MiB begins in this span, touch it and measure the cost. The caller has just allocated the span and
 * it reads as zero. A huge page is expensive where the system has to move other pages for it, or where a guest's host
 * must first find the memory. The next ranges then get small pages, twice as many ranges each time
 * (docs/design.md, "Huge pages").
 */
void huge_touch(uint32_t slice, uint32_t slices);

/* The pages of [slice, slice + length), which is out of the bins, are about to be returned to the system. */
void huge_discarding(uint32_t slice, uint32_t length);

/* The slices for which huge pages are requested, whether in use or not. */
uint64_t huge_slices(void);

#endif
