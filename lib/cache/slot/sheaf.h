/*
 * Sheaves, and the pool of empty ones.
 *
 * A sheaf is 2^order words, aligned to its own size:
 *     word 0      in no slot `next` (low half) and `count`, in a slot the account of the ends; the capacity
 *     word 1      0, so that a pop that reads it finds the sheaf empty
 *     then        `capacity` pointers
 *     then        the mark of a full sheaf, space.base; no later than in the last word
 * So its start follows from any pointer into it and the order of the piece of 4 KiB that it was cut from. The mark is
 * an address at which no object lies; the sections have it in a register, and compare with that.
 *
 * While a sheaf is in no slot it is a `struct sheaf`. At an end of a slot it is a `struct attached_sheaf`, which has
 * no `count`: the slot's word tells how many objects there are. A push to the first entry compares the object with
 * words 1 and 0. No object equals word 0, which has the capacity in its upper 16 bits.
 *
 * Word 1 is not 0 in a prefilled sheaf that a user has (cache/kmem/prefill.c), nor in one of deferred frees
 * (cache/deferred/rcu.c). Neither is at an end of a slot.
 *
 * Empty sheaves serve every cache. Their memory is used for nothing else and is never returned to the system, so that
 * a late reader of a sheaf still reads one.
 */
#ifndef SHEAF_SLOT_SHEAF_H
#define SHEAF_SLOT_SHEAF_H

#include "platform/rseq/layout.h"
#include "memory/space/space.h"

#define SHEAF_ORDER_MIN 3 /* 8 words, 5 objects */
#define SHEAF_ORDER_MAX 9 /* 512 words, 509 objects */

/* How many slow calls a slot had made when its ends began to change places (cache/ends.c). */
struct slow_calls {
    uint32_t n;
};

struct sheaf {
    union {
        uint32_t next;           /* in a stack, a list or of a user: offset of the next sheaf, 0 for none */
        struct slow_calls since; /* of a thread that detached it from a pop end, or will attach it there */
    };
    uint16_t count; /* objects */
    uint16_t capacity;
    uint64_t bottom; /* 0 unless a user has the sheaf or it collects deferred frees */
    void *objects[];
};

/* What the account of two ends has in 16 bits; only cache/ends.c knows how. */
struct ends_total {
    uint16_t bits;
};

/* The thread that attaches the sheaf writes the account, and so do exchanges on the slot. Any thread may read it. */
struct attached_sheaf {
    union {
        uint32_t pushes;         /* the push end of two */
        struct slow_calls since; /* the pop end of two */
        uint32_t pops_start;     /* the one end of a LIFO cache: the count of pops in the word began here */
    };
    union {
        struct ends_total total; /* the push end of two */
        uint16_t count_then;     /* other ends: objects when it was attached */
    };
    uint16_t capacity;
    uint64_t bottom;
    void *objects[];
};
_Static_assert(sizeof(struct sheaf) == 16 && sizeof(struct attached_sheaf) == 16, "the first word and the bottom");

/* The same sheaf in its other place: for the thread that moves it, and for what does not depend on the place. */
static inline struct sheaf *sheaf_detached(struct attached_sheaf *sheaf)
{
    return (struct sheaf *)sheaf;
}
static inline struct attached_sheaf *sheaf_attached(struct sheaf *sheaf)
{
    return (struct attached_sheaf *)sheaf;
}

/* The largest capacity of a sheaf of that order, and the least order for a capacity. */
static inline unsigned sheaf_capacity_of(unsigned order)
{
    return (1u << order) - 3;
}
unsigned sheaf_order_for(unsigned capacity);

/* Words and links hold the offset of a sheaf from the constant sheaf, in 32 bits. */
static inline uint32_t sheaf_offset(const struct sheaf *sheaf)
{
    return (uint32_t)((uintptr_t)sheaf - space.base - CONSTANT_AT);
}
static inline struct sheaf *sheaf_at(uint32_t offset)
{
    return (struct sheaf *)(space.base + CONSTANT_AT + offset);
}

/* An end of a slot: the offset, from the constant sheaf, of the first unused entry; 0 for none. */
struct end {
    uint32_t at;
};
static inline void **sheaf_entry(struct end end)
{
    return (void **)(space.base + CONSTANT_AT + end.at);
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
 * The first piece holds sheaves of several orders, so that a small program touches one page for all of them. It has
 * eight parts of 512 bytes; the digits are their orders, that of the first part last.
 */
#define SHEAF_MIXED        1 /* the value at sheaf_order_at() of that piece */
#define SHEAF_MIXED_ORDERS 0x36554444u
#define SHEAF_PART_SHIFT   (SHEAF_PAGE_SHIFT - 3)
static inline unsigned sheaf_mixed_order(uintptr_t at)
{
    unsigned part = (unsigned)(at >> SHEAF_PART_SHIFT) & 7;
    return SHEAF_MIXED_ORDERS >> 4 * part & 15;
}

static inline unsigned sheaf_order(const void *in)
{
    unsigned order = *sheaf_order_at(in);
    return likely(order != SHEAF_MIXED) ? order : sheaf_mixed_order((uintptr_t)in);
}

/* The sheaf at an end of a slot. */
static inline struct attached_sheaf *sheaf_containing(struct end end)
{
    uintptr_t p = (uintptr_t)sheaf_entry(end);
    return (struct attached_sheaf *)(p & ~((8ul << sheaf_order((void *)p)) - 1));
}

/*
 * An empty sheaf of that capacity; NULL if there is no memory. Safe in signal handlers: the pool is lock-free, but
 * does not grow in a handler that interrupted the holder of the region's lock.
 */
struct sheaf *empty_sheaf_alloc(unsigned capacity);
void empty_sheaf_free(struct sheaf *sheaf);

/* A lock-free stack of sheaves: the offset of the first; the upper half of the head counts changes, against ABA. */
struct sheaf_stack {
    _Atomic uint64_t head;
};
void sheaf_stack_push(struct sheaf_stack *stack, struct sheaf *sheaf);
struct sheaf *sheaf_stack_pop(struct sheaf_stack *stack);
static inline bool sheaf_stack_holds(struct sheaf_stack *stack)
{
    return (uint32_t)atomic_load_explicit(&stack->head, memory_order_relaxed) != 0;
}

/* Empties the stack, and returns its sheaves linked by `next`; NULL if it was empty. */
struct sheaf *sheaf_stack_take_all(struct sheaf_stack *stack);

/*
 * Walks for the leak scan: over a stack, the pool, and all sheaves that were ever cut. They end even if other threads
 * change the stacks. Each sheaf has a number below sheaf_numbers().
 */
typedef void sheaf_visitor(struct sheaf *sheaf, void *with);
void sheaf_stack_each(struct sheaf_stack *stack, sheaf_visitor *visit, void *with);
void sheaf_pool_each(sheaf_visitor *visit, void *with);
void sheaf_each(sheaf_visitor *visit, void *with);
size_t sheaf_numbers(void);
size_t sheaf_number(const struct sheaf *sheaf);

/* Bytes that were cut into sheaves, and the number of sheaves. */
uint64_t sheaf_pool_bytes(void);
uint64_t sheaf_pool_cut(void);

/* Unmap the first pieces that were never used; the conditions of space_slim(). */
void sheaf_slim(void);

#endif
