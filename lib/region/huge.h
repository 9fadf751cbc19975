/*
 * Huge pages for slabs. The region is told to have none at first, because a table's or a small program's first byte
 * must not cost 2 MiB. Once slabs fill HUGE_AFTER, all that they grow into afterwards is advised to be huge: it is
 * filled from its start to its end, so that at most one huge page at a time is partly used, an eighth of what there
 * is. For large blocks beyond the first 64 MiB the system's policy decides: they get huge pages where it is "always",
 * as other allocators' large blocks do.
 *
 * khugepaged would make a huge page again of one that was given back in part, and bring back what went. So a window
 * (2 MiB) that is given back in part is advised against, by itself; where that would make too many mappings, all are.
 */
#ifndef SHEAF_REGION_HUGE_H
#define SHEAF_REGION_HUGE_H

#include "os/compiler.h"

/* Whether to ask at all. Before the first call below. */
void huge_init(bool wanted);

/* What struct unit says in the first unit of a window. */
enum window_pages {
    WINDOW_SMALL,
    WINDOW_HUGE,    /* huge pages were asked for */
    WINDOW_AGAINST, /* they were, and not any more */
};

struct arena;

/* Slabs have `in_use` units, of which this arena's may have become many. The region's lock is held. */
void huge_grown(uint64_t in_use, const struct arena *arena);

/* Units [from, to) of an arena are mapped now, or not any more. The region's lock is held. */
void huge_mapped(const struct arena *arena, uint32_t from, uint32_t to);
void huge_unmapped(uint32_t from, uint32_t to);

/*
 * A run that the caller has just taken and that reads as zero: where a window begins in it, touch that and see what
 * it costs. A huge page is dear where the system has to move others for it, or where a guest's host has yet to find
 * the memory: 1500 us have been seen, where it otherwise takes 250 to 350, and 512 small pages 600. Then the next
 * windows get small pages, more of them each time. (Objects of 16 bytes, 256 MiB: 13.6 ns became 8.3; 5.2 where it is
 * cheap.)
 */
void huge_touch(uint32_t unit, uint32_t units);

/* [unit, unit + length), which is out of the bins, is about to be given back. */
void huge_discarding(uint32_t unit, uint32_t length);

/* Units that may lie on huge pages, used or not. */
uint64_t huge_units(void);

#endif
