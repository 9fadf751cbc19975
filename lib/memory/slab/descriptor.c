#include "memory/slab/descriptor.h"

#include <string.h>

/* Descriptors have at most 17 lines of 64 bytes: a header and up to 1024 bytes of bits. */
#define LINES_MAX 18

/*
 * Lock-free stacks of free descriptors, by number of lines. The upper half of a head counts changes, against ABA.
 * References begin at 1; 0 means none.
 */
static _Atomic uint64_t stacks[LINES_MAX];
static _Atomic uint32_t next_line; /* the next line to be cut; 0 if none was cut yet */

/*
 * The line from which `lines` lines can be cut if `next` is the next free one; 0 if there is none. The first
 * descriptors lie apart from the others.
 */
static uint32_t place_for(uint32_t next, unsigned lines)
{
    size_t first = space.slabs_first / 64, first_end = space.slabs_first_end / 64, end = space.slabs.most / 64;
    if (!next)
        next = (uint32_t)first;
    if (next >= first && next + lines <= first_end)
        return next;
    if (next >= first)
        next = 1;
    return next + lines <= end ? next : 0;
}

static bool reachable(uint32_t reference, unsigned lines)
{
    size_t end = (reference + (size_t)lines) * 64;
    return reference >= space.slabs_first / 64 ? space_grow(&space.boot_slabs, end - space.slabs_first)
                                               : space_grow(&space.slabs, end);
}

static uint32_t stack_pop(_Atomic uint64_t *stack)
{
    uint64_t head = atomic_load(stack);
    uint64_t next;
    do {
        if (!(uint32_t)head)
            return 0;
        /* may be stale if another thread popped the head; the count then makes the exchange fail */
        uint32_t below = read_once(descriptor_of((uint32_t)head)->next);
        next = ((head >> 32) + 1) << 32 | below;
    } while (!atomic_compare_exchange_weak(stack, &head, next));
    return (uint32_t)head;
}

struct slab *descriptor_alloc(unsigned objects)
{
    unsigned words = (objects + 63) / 64;
    unsigned lines = 1 + (words + 7) / 8;
    uint32_t reference = stack_pop(&stacks[lines]);
    if (!reference) {
        uint32_t next = atomic_load(&next_line);
        do { /* lines that cannot be mapped are not used up */
            reference = place_for(next, lines);
            if (!reference || !reachable(reference, lines))
                return NULL;
        } while (!atomic_compare_exchange_weak(&next_line, &next, reference + lines));
    }
    struct slab *slab = descriptor_of(reference);
    memset(slab, 0, lines * 64ul);
    slab->reference = reference;
    slab->words = (uint16_t)words;
    return slab;
}

void descriptor_free(struct slab *slab)
{
    _Atomic uint64_t *stack = &stacks[1 + (slab->words + 7) / 8];
    uint64_t head = atomic_load(stack);
    uint64_t next;
    do {
        write_once(slab->next, (uint32_t)head);
        next = ((head >> 32) + 1) << 32 | slab->reference;
    } while (!atomic_compare_exchange_weak(stack, &head, next));
}

void descriptor_slim(void)
{
    size_t first = space.slabs_first / 64, next = atomic_load(&next_line);
    if (next >= first)
        space_shorten(&space.boot_slabs, (next - first) * 64);
}
