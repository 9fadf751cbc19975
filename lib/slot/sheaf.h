/*
 * Sheaves, and the pool of empty ones.
 *
 * A sheaf is 2^order words, aligned to its own size:
 *     word 0      link (low half), count and capacity
 *     word 1      0: a pop that reads it finds the sheaf empty
 *     then        `capacity` pointers
 *     then        space.base: a push that reads it finds the sheaf full; at the latest the last word. (No object lies
 *                 there, and a comparison with a register costs less than one with a number.)
 * so that its start follows from any pointer into it and the order of the piece of 4 KiB that it was cut from.
 *
 * `count` is the number of objects while the sheaf belongs to nobody else. In a slot, `link` and `count` hold the
 * account of its ends (cache/ends.h), and the slot's word tells how many objects there are now. The capacity stands
 * in the upper 16 bits of word 0: no pointer to an object looks like that (push compares them).
 *
 * A prefilled sheaf that a user has (kmem/prefill.c) says so in word 1, and names its cache there; so does one that
 * collects deferred frees (deferred/rcu.c).
 *
 * Empty sheaves serve every cache, and are never given back. Their memory is typed: a stale reader sees a sheaf.
 */
#ifndef SHEAF_SLOT_SHEAF_H
#define SHEAF_SLOT_SHEAF_H

#include "os/rseq_layout.h"
#include "space/space.h"

#define SHEAF_ORDER_MIN 3 /* 8 words, 5 objects */
#define SHEAF_ORDER_MAX 9 /* 512 words, 509 objects */

struct sheaf {
    uint32_t
        link; /* in a stack, and in what a user has: offset of the next, 0 for none; in a slot: see cache/ends.h */
    uint16_t count;
    uint16_t capacity;
    uint64_t bottom; /* 0, but while a user has it or deferred frees are in it */
    void *objects[];
};

/* Most objects of a sheaf of that order, and the order needed for so many. */
static inline unsigned sheaf_capacity_of(unsigned order)
{
    return (1u << order) - 3;
}
unsigned sheaf_order_for(unsigned capacity);

/* Sheaves are known by their offset from the constant sheaf: 32 bits. */
static inline uint32_t sheaf_offset(const struct sheaf *sheaf)
{
    return (uint32_t)((uintptr_t)sheaf - space.base - CONSTANT_AT);
}
static inline struct sheaf *sheaf_at(uint32_t offset)
{
    return (struct sheaf *)(space.base + CONSTANT_AT + offset);
}

/* The entry that an offset points to. */
static inline void **sheaf_entry(uint32_t offset)
{
    return (void **)(space.base + CONSTANT_AT + offset);
}

static inline uintptr_t sheaf_full_mark(void)
{
    return space.base;
}

static inline uint8_t *sheaf_order_at(const void *in)
{
    return &space.orders[((uintptr_t)in - (uintptr_t)space.sheaves.start) >> SHEAF_PAGE_SHIFT];
}

/*
 * The first piece holds sheaves of several orders, so that a small program touches one page for them and not one for
 * each: eight slices of 512 bytes, and their orders from the lowest digit on.
 */
#define SHEAF_MIXED        1 /* what sheaf_order_at() says of that piece */
#define SHEAF_MIXED_ORDERS 0x36554444u
#define SHEAF_SLICE_SHIFT  (SHEAF_PAGE_SHIFT - 3)
static inline unsigned sheaf_mixed_order(uintptr_t at)
{
    unsigned slice = (unsigned)(at >> SHEAF_SLICE_SHIFT) & 7;
    return SHEAF_MIXED_ORDERS >> 4 * slice & 15;
}

static inline unsigned sheaf_order(const void *in)
{
    unsigned order = *sheaf_order_at(in);
    return likely(order != SHEAF_MIXED) ? order : sheaf_mixed_order((uintptr_t)in);
}

/* The sheaf that an offset points into. */
static inline struct sheaf *sheaf_containing(uint32_t offset)
{
    uintptr_t p = space.base + CONSTANT_AT + offset;
    return (struct sheaf *)(p & ~((8ul << sheaf_order((void *)p)) - 1));
}

/* An empty sheaf of that capacity; NULL when there is no memory. Lock-free, safe in signal handlers. */
struct sheaf *empty_sheaf_alloc(unsigned capacity);
void empty_sheaf_free(struct sheaf *sheaf);

/* A lock-free stack of sheaves; the upper half of the head counts the changes, against ABA. */
typedef _Atomic uint64_t sheaf_stack;
void sheaf_stack_push(sheaf_stack *stack, struct sheaf *sheaf);
struct sheaf *sheaf_stack_pop(sheaf_stack *stack);

/* All of it, linked by `link`; NULL when it is empty. */
struct sheaf *sheaf_stack_take_all(sheaf_stack *stack);

/* Bytes cut into sheaves, and how many empty ones were cut. */
uint64_t sheaf_pool_bytes(void);
uint64_t sheaf_pool_cut(void);

#endif
