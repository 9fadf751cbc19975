#include "slot/counters.h"

uintptr_t counters_file;

uint64_t counter_sum(unsigned number, enum slot_counter which)
{
    uint64_t sum = 0;
    for (unsigned slot = 0; slot < read_once(slot_top); slot++)
        sum += read_once(*counter_at(slot, number, which));
    return sum;
}
