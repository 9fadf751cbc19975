/* Counters by name, from counters.def, and the places where slots count. */
#ifndef SHEAF_SLOT_COUNTERS_H
#define SHEAF_SLOT_COUNTERS_H

#include "platform/rseq/rseq.h"
#include "memory/space/space.h"

enum slot_counter {
#define SHEAF_SLOT_COUNTERS(name, help) COUNT_##name,
#include "cache/slot/counters.def"
#undef SHEAF_SLOT_COUNTERS
    SLOT_COUNTERS
};
_Static_assert(SLOT_COUNTERS * 8 <= COUNTER_STRIDE, "a cache's counters fit their stride");

enum cache_gauge {
#define SHEAF_CACHE_GAUGES(name, help) GAUGE_##name,
#include "cache/slot/counters.def"
#undef SHEAF_CACHE_GAUGES
    CACHE_GAUGES
};

enum process_value {
#define SHEAF_PROCESS_VALUES(name, help) VALUE_##name,
#include "cache/slot/counters.def"
#undef SHEAF_PROCESS_VALUES
    PROCESS_VALUES
};

/*
 * Where slots count the caches of a group: in a mapped file, from this address upwards, counters_file_stride bytes
 * apart; or, while this is 0, in the space. One word for each group decides, because it changes while other threads
 * count. The stride is set before and stays the same.
 */
extern hidden uintptr_t counters_file[CACHE_MAX / COUNTER_GROUP];
extern hidden intptr_t counters_file_stride;

/* Where slot 0 counts something, and the distance from each slot to the next. */
struct counter_place {
    uintptr_t first;
    intptr_t stride;
};

static inline struct counter_place counter_place(unsigned number, enum slot_counter which)
{
    uintptr_t file = __atomic_load_n(&counters_file[number / COUNTER_GROUP], __ATOMIC_ACQUIRE);
    uintptr_t at = (uintptr_t)which * sizeof(uint64_t);
    if (likely(!file))
        return (struct counter_place){space_counters(number) + at, -(intptr_t)COUNTER_BLOCK};
    return (struct counter_place){file + number % COUNTER_GROUP * COUNTER_STRIDE + at, counters_file_stride};
}

static inline uint64_t *counter_at(unsigned slot, unsigned number, enum slot_counter which)
{
    struct counter_place place = counter_place(number, which);
    return (uint64_t *)(place.first + (uintptr_t)((intptr_t)slot * place.stride));
}

/*
 * For slow paths. Where fast paths are used, the thread counts in the slot that it is on, not in `slot`, because an
 * addition there needs no locked instruction: a swap of sheaves counts four things, and locked additions took half of
 * its time. Without, and while the fast paths are paused, it counts in `slot` by an atomic addition, because it may
 * have left the slot.
 */
extern hidden const struct rseq_area *counters_area; /* NULL without fast paths, and while they are paused */

/* Slots from here up have counted nothing, and no sheaf was ever installed there. */
extern hidden unsigned slot_top;
void slot_raise_top(unsigned slot);

/* Make the counters of the slot that a section found writable. The reserved slot means that the thread is yet to
 * register (platform/rseq/own.h). Returns false if that is refused. */
bool counters_reach(uint32_t slot);

static inline void count(unsigned slot, unsigned number, enum slot_counter which, uint64_t n)
{
    const struct rseq_area *area = read_once(counters_area);
    if (unlikely(!area)) {
        __atomic_fetch_add(counter_at(slot, number, which), n, __ATOMIC_RELAXED);
        return;
    }
    struct counter_place place = counter_place(number, which);
    uint32_t here, open;
    do { /* the thread may have migrated to a slot whose counters are not writable yet */
        open = atomic_load_explicit(&space.slots_open, memory_order_relaxed);
        here = rseq_add(area, place.first, place.stride, n, open);
    } while (unlikely(here >= open) && counters_reach(here));
    if (unlikely(here >= open)) /* refused; a concurrent count of the slot's threads may be lost */
        __atomic_fetch_add(counter_at(slot, number, which), n, __ATOMIC_RELAXED);
    else if (unlikely(here >= read_once(slot_top)))
        slot_raise_top(here);
}

/* The sum over all slots. */
uint64_t counter_sum(unsigned number, enum slot_counter which);

#endif
