/*
 * What is known about each slice of the region, in a table beside it.
 *
 * Invariants, under the region's lock:
 * - Slices form spans, each in chunks of one arena (memory/region/arena.h). The first slice of a span holds its
 * `length` and `kind`. The last slice of a free span repeats the length with kind SLICE_TAIL. All other slices have
 * kind SLICE_INSIDE, so the kind of a slice tells whether a pointer to it can be freed, without a search for the
 * head.
 * - No two free spans of an arena are adjacent: they are joined when freed. The slice below an arena's frontier may
 *   be the tail of a free span. All slices at and above the frontier, in the arena's current extent, are
 *   SLICE_INSIDE.
 * - A free span is in the bin of its length; if any of its slices is dirty, it is also in the list by age.
 */
#ifndef SHEAF_SPACE_SLICE_H
#define SHEAF_SPACE_SLICE_H

#include "memory/space/space.h"

enum slice_kind {
    SLICE_INSIDE = 0, /* not the start of anything */
    SLICE_FREE,       /* head of a free span */
    SLICE_TAIL,       /* last slice of a free span of two or more */
    SLICE_SLAB,       /* head of a slab; each of its slices has `slab` */
    SLICE_LARGE,      /* head of a large block in use */
    SLICE_CLOSED,     /* head of a large block that is being freed: a second free detects it */
    SLICE_GUARD, /* a guard between slabs, or head of a span whose block follows a guard (front/malloc/guarded.c) */
    SLICE_BUSY,  /* head of a span whose pages are being returned to the system: neither free nor in use */
};

#define SLICE_NONE UINT32_MAX

struct slice {
    uint32_t length; /* slices in the span */
    uint8_t kind;    /* enum slice_kind */
    union {
        uint8_t listed; /* free: it is in the list by age */
        uint8_t
            sampled; /* large: it is a sample (diagnostics/profile/profile.h); 0 again before the block is freed */
    };
    uint8_t huge_advice; /* of the first slice of a huge page: what was advised (memory/region/huge.h) */
    uint8_t guarded; /* large: has guards; `lead` slices of them precede the block, `pages` of it are accessible */
    uint32_t bin_next, bin_prev; /* free: its neighbours in the bin, SLICE_NONE at the ends */
    union {
        struct {
            uint32_t age_next, age_prev; /* free and dirty: its neighbours by age */
        };
        struct {
            uint32_t lead, pages; /* large and guarded */
        };
    };
    uint32_t stamp; /* free: clock_ms() when it was freed */
    uint32_t
        slab; /* of a slab, in each of its slices: the descriptor (memory/slab/slab.h); stays after the release */
};

_Static_assert(sizeof(struct slice) == 32, "the table is sized for it");

/* `slice` is below space.slice_count. The structs of the first slices lie apart, in the bootstrap tables. */
static inline struct slice *slice_at(uintptr_t slice)
{
    struct slice *rest = (struct slice *)(void *)space.slices_table.start;
    return likely(slice < SLICES_FIRST) ? &space.slices_first[slice] : &rest[slice - SLICES_FIRST];
}

#endif
