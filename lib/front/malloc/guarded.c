#include "front/malloc/guarded.h"
#include "platform/os/vm.h"
#include "memory/region/guard.h"

#define LEAD_MOST 64 /* slices; a larger alignment would cost too much address space */

_Atomic uint64_t guarded_slices;

static size_t whole_slices(size_t n)
{
    return (n + SLICE_SIZE - 1) >> SLICE_SHIFT;
}

static size_t whole_pages(size_t n)
{
    return round_up(n, space.page_size);
}

/* Closes the span behind the accessible part of the block, up to the end of the span. */
static bool close_tail(uint32_t slice, size_t open, uint32_t end)
{
    return vm_close((char *)slice_address(slice) + open, ((size_t)(end - slice) << SLICE_SHIFT) - open);
}

static void fill_in(uint32_t head, uint32_t lead, size_t n)
{
    struct slice *block = slice_at(head + lead);
    block->length = (uint32_t)whole_slices(n);
    block->guarded = 1;
    block->lead = lead;
    block->pages = (uint32_t)(whole_pages(n) / space.page_size);
    slice_at(head)->kind = SLICE_GUARD;
    __atomic_store_n(&block->kind, SLICE_LARGE, __ATOMIC_RELEASE);
    atomic_fetch_add(&guarded_slices, slice_at(head)->length - block->length);
}

void *guarded_alloc(size_t n, size_t align, bool *zeroed)
{
    uint32_t lead = align > SLICE_SIZE ? (uint32_t)(align >> SLICE_SHIFT) : 1;
    if (n > PTRDIFF_MAX || align > LEAD_MOST * SLICE_SIZE || whole_slices(n) >= space.slice_most)
        return NULL;
    uint32_t slices = lead + (uint32_t)whole_slices(n) + 1;
    if (!guard_claim())
        return NULL;
    uint32_t head = region_alloc_parts(slices, lead, zeroed);
    if (head == SLICE_NONE) {
        guard_drop();
        return NULL;
    }
    char *start = slice_address(head);
    if (!vm_commit(slice_address(head + lead), whole_pages(n)) || !vm_close(start, (size_t)lead << SLICE_SHIFT) ||
        !close_tail(head + lead, whole_pages(n), head + slices)) {
        if (vm_reopen(start, (size_t)slices << SLICE_SHIFT))
            region_free(head);
        guard_drop();
        return NULL;
    }
    fill_in(head, lead, n);
    return slice_address(head + lead);
}

bool guarded_resize(uint32_t slice, size_t n)
{
    struct slice *block = slice_at(slice);
    size_t had = guarded_size(block), pages = whole_pages(n);
    char *start = slice_address(slice);
    if (whole_slices(n) != block->length)
        return false;
    if (pages > had ? !vm_open(start + had, pages - had) : pages < had && !vm_close(start + pages, had - pages))
        return false;
    block->pages = (uint32_t)(pages / space.page_size);
    return true;
}

uint32_t guarded_open(uint32_t slice)
{
    struct slice *block = slice_at(slice);
    uint32_t head = slice - block->lead, slices = slice_at(head)->length;
    if (!vm_reopen(slice_address(head), (size_t)slices << SLICE_SHIFT))
        return SLICE_NONE;
    guard_drop();
    atomic_fetch_sub(&guarded_slices, slices - block->length);
    block->guarded = 0;
    block->kind = SLICE_INSIDE;
    return head;
}
