/* Giving memory back: what is more than may stay, what pays for new memory, what is old, and everything. */
#ifndef SHEAF_REGION_GIVE_H
#define SHEAF_REGION_GIVE_H

#include "region/state.h"

/* How much of a kind may be free and resident. */
uint64_t give_limit(enum arena_kind kind);

/* Whether give_surplus() is to be called. The lock is held. */
bool give_due(enum arena_kind kind, uint64_t limit);

/* Give back what is more than the limit, and some more. No lock is held here and below. */
void give_surplus(enum arena_kind kind, uint64_t limit);

/* What is to be paid for memory that was touched for the first time. */
struct debt {
    enum arena_kind by;
    uint32_t units; /* 0: nothing */
};

/* The lock is held. */
struct debt give_take_debt(enum arena_kind by);
void give_pay(struct debt debt);

#endif
