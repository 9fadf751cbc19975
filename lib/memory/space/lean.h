/* What the space does where memory is locked (struct space, `lean`). For the sources of the space. */
#ifndef SHEAF_SPACE_LEAN_H
#define SHEAF_SPACE_LEAN_H

#include "platform/os/vm.h"
#include "memory/space/slice.h"

static inline size_t page_down(size_t n)
{
    return n & ~(vm_page_size() - 1);
}

static inline size_t page_up(size_t n)
{
    return round_up(n, vm_page_size());
}

/*
 * Where the pages begin that hold the counters of the first `slots` slots. They grow downwards from the start of a
 * page, and a page of 64 KiB holds those of two slots.
 */
static inline char *counters_of(unsigned slots)
{
    return (char *)page_down((uintptr_t)space.counters - slots * COUNTER_BLOCK);
}

static inline size_t ids_below(void)
{
    return (space.region - space.base) >> SLICE_SHIFT;
}

/* The first slices whose structs fill a page. */
static inline uint32_t slices_of_page(void)
{
    return (uint32_t)(vm_page_size() / sizeof(struct slice));
}

/* Map [from, to) with one of the vm_extend functions of platform/os/vm.h, and without huge pages. */
enum vm_extent space_map_part(char *from, const char *to, enum vm_extent (*extend)(void *at, size_t size));

/* What set_up() set, if not all of it is mapped: `slices` slices are in use, or a page of them. */
void lean_set_up(uint32_t slices);

/* space_open_slots() */
bool lean_open_slots(unsigned slots);

#endif
