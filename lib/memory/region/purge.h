/* Returning memory to the system: what exceeds the limit, what pays for new memory, what is old, or everything. */
#ifndef SHEAF_REGION_PURGE_H
#define SHEAF_REGION_PURGE_H

#include "memory/region/state.h"

/* The number of slices of a kind that may be free and resident. */
uint64_t purge_limit(enum arena_kind kind);

/* Whether purge_surplus() should be called. The caller holds the region's lock. */
bool purge_due(enum arena_kind kind, uint64_t limit);

/* Return what exceeds the limit, and some more. The caller must not hold the region's lock. */
void purge_surplus(enum arena_kind kind, uint64_t limit);

/* The payment that is due for memory that was touched for the first time. */
struct debt {
    enum arena_kind by;
    uint32_t slices; /* 0: nothing */
};

/*
 * Take over the debt of a kind, if it is large enough; the caller holds the region's lock. Then release the lock
 * and pay with purge_old().
 */
struct debt purge_take_debt(enum arena_kind by);
void purge_old(struct debt debt);

#endif
