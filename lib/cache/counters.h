/* Counters by name, made from counters.def. */
#ifndef SHEAF_CACHE_COUNTERS_H
#define SHEAF_CACHE_COUNTERS_H

#include "region/space.h"

enum slot_counter {
#define SHEAF_SLOT_COUNTERS(name, help) COUNT_##name,
#include "cache/counters.def"
#undef SHEAF_SLOT_COUNTERS
    SLOT_COUNTERS
};
_Static_assert(SLOT_COUNTERS * 8 <= COUNTER_STRIDE, "a cache's counters fit their stride");
_Static_assert(COUNTER_BLOCK == 1ul << 19, "as rseq_add() says");

enum cache_gauge {
#define SHEAF_CACHE_GAUGES(name, help) GAUGE_##name,
#include "cache/counters.def"
#undef SHEAF_CACHE_GAUGES
    CACHE_GAUGES
};

enum process_value {
#define SHEAF_PROCESS_VALUES(name, help) VALUE_##name,
#include "cache/counters.def"
#undef SHEAF_PROCESS_VALUES
    PROCESS_VALUES
};

/*
 * Where slots count: in the record file, upwards from here, or in the space, downwards. One word tells both, because
 * it changes while other threads count: bit 0 is set where it goes down.
 */
extern hidden uintptr_t counters_base;
#define COUNTERS_DOWN 1ul

static inline uint64_t *counter_at(unsigned slot, unsigned number, enum slot_counter which)
{
    uintptr_t base = read_once(counters_base);
    uint64_t down = -(base & COUNTERS_DOWN); /* 0, or all ones: then slot ^ down is -1 - slot */
    return (uint64_t *)(base + down + (slot ^ down) * COUNTER_BLOCK + (size_t)number * COUNTER_STRIDE) + which;
}

/*
 * Slow paths only. With rseq it is the slot that the thread is on now which counts (whatever `slot` was meant),
 * because only there an addition needs no lock: a swap of sheaves counts four things, and locked that was half of its
 * time. Else atomic, because the thread may have left the slot. One process never does both.
 */
extern hidden const struct rseq_area *counters_area; /* NULL: not with rseq */

/* Slots from here up were never installed to, and counted nothing. */
extern hidden unsigned slot_top;
void slot_raise_top(unsigned slot);

static inline void count(unsigned slot, unsigned number, enum slot_counter which, uint64_t n)
{
    if (unlikely(!counters_area)) {
        __atomic_fetch_add(counter_at(slot, number, which), n, __ATOMIC_RELAXED);
        return;
    }
    uint32_t here = rseq_add(counters_area, read_once(counters_base),
                             (uintptr_t)number * COUNTER_STRIDE + (uintptr_t)which * sizeof(uint64_t), n);
    if (unlikely(here >= read_once(slot_top)))
        slot_raise_top(here);
}

/* The sum over all slots. */
uint64_t counter_sum(unsigned number, enum slot_counter which);

#endif
