/*
 * What is known about each unit of the region, in a table beside it.
 *
 * Invariants, under the region's lock:
 * - Units form runs, each in chunks of one arena (region/arena.h). The first unit of a run holds its `length` and
 *   `kind`. The last unit of a free run repeats the length with kind UNIT_TAIL. All other units have kind
 *   UNIT_INSIDE, so the kind of a unit tells whether a pointer to it can be freed, without a search for the head.
 * - No two free runs of an arena are adjacent: they are joined when freed. The unit below an arena's frontier may
 *   be the tail of a free run. All units at and above the frontier, in the arena's current stretch, are
 *   UNIT_INSIDE.
 * - A free run is in the bin of its length; if any of its units is dirty, it is also in the list by age.
 */
#ifndef SHEAF_SPACE_UNIT_H
#define SHEAF_SPACE_UNIT_H

#include "space/space.h"

enum unit_kind {
    UNIT_INSIDE = 0, /* not the start of anything */
    UNIT_FREE,       /* head of a free run */
    UNIT_TAIL,       /* last unit of a free run of two or more */
    UNIT_SLAB,       /* head of a slab; each of its units has `slab` */
    UNIT_LARGE,      /* head of a large block in use */
    UNIT_CLOSED,     /* head of a large block that is being freed: a second free detects it */
    UNIT_GUARD,      /* a guard between slabs, or head of a run whose block follows a guard (malloc/guarded.c) */
    UNIT_BUSY,       /* head of a run whose pages are being returned to the system: neither free nor in use */
};

#define UNIT_NONE UINT32_MAX

struct unit {
    uint32_t length; /* units in the run */
    uint8_t kind;    /* enum unit_kind */
    union {
        uint8_t listed;  /* free: it is in the list by age */
        uint8_t sampled; /* large: it is a sample (profile/profile.h); 0 again before the block is freed */
    };
    uint8_t window;  /* first of a window of 2 MiB: enum window_pages (region/huge.h) */
    uint8_t guarded; /* large: has guards; `lead` units of them precede the block, `pages` of it are accessible */
    uint32_t bin_next, bin_prev; /* free: its neighbours in the bin, UNIT_NONE at the ends */
    union {
        struct {
            uint32_t age_next, age_prev; /* free and dirty: its neighbours by age */
        };
        struct {
            uint32_t lead, pages; /* large and guarded */
        };
    };
    uint32_t stamp; /* free: clock_ms() when it was freed */
    uint32_t slab;  /* of a slab, in each of its units: the descriptor (slab/slab.h); stays after the release */
};

_Static_assert(sizeof(struct unit) == 32, "the table is sized for it");

/* `unit` is below space.unit_count. The structs of the first units lie apart, in the hub. */
static inline struct unit *unit_at(uintptr_t unit)
{
    struct unit *rest = (struct unit *)(void *)space.units_table.start;
    return likely(unit < UNITS_FIRST) ? &space.units_first[unit] : &rest[unit - UNITS_FIRST];
}

#endif
