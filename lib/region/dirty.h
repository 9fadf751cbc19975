/* A bit for each unit of the region: its pages may hold data. Protected as region/region.c says. */
#ifndef SHEAF_REGION_DIRTY_H
#define SHEAF_REGION_DIRTY_H

#include "os/compiler.h"

/* Set or clear the bits of [from, to); returns how many were set before. */
uint32_t dirty_change(uint32_t from, uint32_t to, bool set);

/* How many of [from, to) are set. */
uint32_t dirty_count(uint32_t from, uint32_t to);

/* The unit from which on the run has `units` dirty ones, or its first one. */
uint32_t dirty_last(uint32_t unit, uint32_t length, uint64_t units);

/* Behind the last dirty unit of a run, or its first one. */
uint32_t dirty_end(uint32_t unit, uint32_t length);

/* Discard the dirty stretches of a run that is out of the bins. False: the system refused one. */
bool dirty_discard(uint32_t unit, uint32_t length);

#endif
