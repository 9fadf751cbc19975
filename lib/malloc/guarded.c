#include "malloc/guarded.h"
#include "os/vm.h"
#include "region/guard.h"

#define LEAD_MOST 64 /* units; a larger alignment would cost too much address space */

_Atomic uint64_t guarded_units;

static size_t whole_units(size_t n)
{
    return (n + UNIT_SIZE - 1) >> UNIT_SHIFT;
}

static size_t whole_pages(size_t n)
{
    return round_up(n, space.page_size);
}

/* Closes the run behind the accessible part of the block, up to the end of the run. */
static bool close_tail(uint32_t unit, size_t open, uint32_t end)
{
    return vm_close((char *)unit_address(unit) + open, ((size_t)(end - unit) << UNIT_SHIFT) - open);
}

static void fill_in(uint32_t head, uint32_t lead, size_t n)
{
    struct unit *block = unit_at(head + lead);
    block->length = (uint32_t)whole_units(n);
    block->guarded = 1;
    block->lead = lead;
    block->pages = (uint32_t)(whole_pages(n) / space.page_size);
    unit_at(head)->kind = UNIT_GUARD;
    __atomic_store_n(&block->kind, UNIT_LARGE, __ATOMIC_RELEASE);
    atomic_fetch_add(&guarded_units, unit_at(head)->length - block->length);
}

void *guarded_alloc(size_t n, size_t align, bool *zeroed)
{
    uint32_t lead = align > UNIT_SIZE ? (uint32_t)(align >> UNIT_SHIFT) : 1;
    if (n > PTRDIFF_MAX || align > LEAD_MOST * UNIT_SIZE || whole_units(n) >= space.unit_most)
        return NULL;
    uint32_t units = lead + (uint32_t)whole_units(n) + 1;
    if (!guard_claim())
        return NULL;
    uint32_t head = region_alloc_parts(units, lead, zeroed);
    if (head == UNIT_NONE) {
        guard_drop();
        return NULL;
    }
    char *start = unit_address(head);
    if (!vm_commit(unit_address(head + lead), whole_pages(n)) || !vm_close(start, (size_t)lead << UNIT_SHIFT) ||
        !close_tail(head + lead, whole_pages(n), head + units)) {
        if (vm_reopen(start, (size_t)units << UNIT_SHIFT))
            region_free(head);
        guard_drop();
        return NULL;
    }
    fill_in(head, lead, n);
    return unit_address(head + lead);
}

bool guarded_resize(uint32_t unit, size_t n)
{
    struct unit *block = unit_at(unit);
    size_t had = guarded_size(block), pages = whole_pages(n);
    char *start = unit_address(unit);
    if (whole_units(n) != block->length)
        return false;
    if (pages > had ? !vm_open(start + had, pages - had) : pages < had && !vm_close(start + pages, had - pages))
        return false;
    block->pages = (uint32_t)(pages / space.page_size);
    return true;
}

uint32_t guarded_open(uint32_t unit)
{
    struct unit *block = unit_at(unit);
    uint32_t head = unit - block->lead, units = unit_at(head)->length;
    if (!vm_reopen(unit_address(head), (size_t)units << UNIT_SHIFT))
        return UNIT_NONE;
    guard_drop();
    atomic_fetch_sub(&guarded_units, units - block->length);
    block->guarded = 0;
    block->kind = UNIT_INSIDE;
    return head;
}
