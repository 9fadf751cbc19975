/* Slots without rseq, so that one thread plays all of them, and sheaves that hold something. */
#ifndef SHEAF_TESTS_LAYER_SLOTS_H
#define SHEAF_TESTS_LAYER_SLOTS_H

#include "layer.h"
#include "cache/slot/slot.h"

#define FOLD 100 /* pops until a LIFO word has to be folded */

/* The thread pointer of the simulated thread (thread.h), from which its slot follows. */
uintptr_t thread_pointer = 64;

/* Go on as a thread on this slot. */
static void run_on(unsigned slot)
{
    for (thread_pointer = 64; slot_current() != slot;)
        thread_pointer += 64;
}

static void start(unsigned slots)
{
    must(space_init(slots, 0));
    region_init(64 * MIB, false, 1000);
    slot_init(false, false, false, false, FOLD);
    run_on(0);
    os_clear();
}

/* Addresses that sheaves hold; nothing reads what is there. */
static void *object(unsigned n)
{
    return (char *)slice_address(1) + 16ul * n;
}

__attribute__((unused)) static struct sheaf *filled(unsigned capacity, unsigned n)
{
    struct sheaf *sheaf = empty_sheaf_alloc(capacity);
    must(sheaf);
    for (unsigned i = 0; i < n; i++)
        sheaf->objects[i] = object(i);
    sheaf->count = (uint16_t)n;
    return sheaf;
}

#endif
