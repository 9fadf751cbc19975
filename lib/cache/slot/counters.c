#include "cache/slot/counters.h"
#include "platform/rseq/own.h"

uintptr_t counters_file[CACHE_MAX / COUNTER_GROUP];
intptr_t counters_file_stride;
const struct rseq_area *counters_area;
unsigned slot_top;

void slot_raise_top(unsigned slot)
{
    unsigned seen = read_once(slot_top);
    while (seen <= slot &&
           !__atomic_compare_exchange_n(&slot_top, &seen, slot + 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}

noinline_cold bool counters_reach(uint32_t slot)
{
    return slot < space.slots ? space_open_slots(slot + 1) : slot == space.slots && own_registered();
}

apart uint64_t counter_sum(unsigned number, enum slot_counter which)
{
    uint64_t sum = 0;
    for (unsigned slot = 0; slot < read_once(slot_top); slot++)
        sum += read_once(*counter_at(slot, number, which));
    return sum;
}
