#include "cache/slot/sheaf.h"

static struct sheaf_stack pool[SHEAF_ORDER_MAX + 1];
static _Atomic uint64_t pieces; /* of 4 KiB, that were cut */
static _Atomic uint64_t cut;    /* sheaves */

#define PIECE (1ul << SHEAF_PAGE_SHIFT)

unsigned sheaf_order_for(unsigned capacity)
{
    unsigned order = SHEAF_ORDER_MIN;
    while (order < SHEAF_ORDER_MAX && sheaf_capacity_of(order) < capacity)
        order++;
    return order;
}

void sheaf_stack_push(struct sheaf_stack *stack, struct sheaf *sheaf)
{
    uint64_t head = atomic_load_explicit(&stack->head, memory_order_relaxed);
    uint64_t next;
    do {
        write_once(sheaf->next, (uint32_t)head);
        next = ((head >> 32) + 1) << 32 | sheaf_offset(sheaf);
    } while (!atomic_compare_exchange_weak_explicit(&stack->head, &head, next, memory_order_release,
                                                    memory_order_relaxed));
}

struct sheaf *sheaf_stack_pop(struct sheaf_stack *stack)
{
    uint64_t head = atomic_load_explicit(&stack->head, memory_order_acquire);
    uint64_t next;
    do {
        if (!(uint32_t)head)
            return NULL;
        /* stale if another thread pops the sheaf meanwhile; then the count has changed, and the exchange fails */
        uint32_t below = read_once(sheaf_at((uint32_t)head)->next);
        next = ((head >> 32) + 1) << 32 | below;
    } while (!atomic_compare_exchange_weak_explicit(&stack->head, &head, next, memory_order_acquire,
                                                    memory_order_acquire));
    return sheaf_at((uint32_t)head);
}

struct sheaf *sheaf_stack_take_all(struct sheaf_stack *stack)
{
    uint64_t head = atomic_load_explicit(&stack->head, memory_order_acquire);
    do {
        if (!(uint32_t)head)
            return NULL;
    } while (!atomic_compare_exchange_weak_explicit(&stack->head, &head, ((head >> 32) + 1) << 32,
                                                    memory_order_acquire, memory_order_acquire));
    return sheaf_at((uint32_t)head);
}

/* The address of a piece; NULL if there are no more. */
static char *piece_at(uint64_t piece)
{
    uint64_t first = space.sheaves_first_size / PIECE;
    if (piece < first)
        return space.sheaves_first + piece * PIECE;
    piece -= first;
    return (piece + 1) * PIECE <= space.sheaves.most ? space.sheaves.start + piece * PIECE : NULL;
}

static bool piece_usable(const char *start)
{
    struct space_table *table = start >= space.sheaves_first ? &space.boot_sheaves : &space.sheaves;
    return space_grow(table, (size_t)(start - table->start) + PIECE);
}

/* Cut the first piece, and put all of its sheaves into the pool. */
static void cut_mixed(char *start)
{
    char *end = start + PIECE;
    *sheaf_order_at(start) = SHEAF_MIXED;
    while (end > start) {
        unsigned order = sheaf_mixed_order((uintptr_t)end - 1);
        end -= 8ul << order;
        sheaf_stack_push(&pool[order], (struct sheaf *)(void *)end);
        atomic_fetch_add(&cut, 1);
    }
}

/*
 * Cut the next piece: one sheaf for the caller, the rest for the pool. A piece that the system does not grant memory
 * for stays the next one.
 */
static struct sheaf *cut_piece(unsigned order)
{
    uint64_t piece = atomic_load(&pieces);
    char *start;
    do {
        start = piece_at(piece);
        if (!start || !piece_usable(start))
            return NULL;
    } while (!atomic_compare_exchange_weak(&pieces, &piece, piece + 1));
    if (!piece) {
        cut_mixed(start);
        struct sheaf *sheaf = sheaf_stack_pop(&pool[order]);
        return sheaf ? sheaf : cut_piece(order); /* the piece has none of that order, or other threads took them */
    }
    *sheaf_order_at(start) = (uint8_t)order;
    size_t bytes = 8ul << order;
    for (char *at = start + bytes; at < start + PIECE; at += bytes)
        sheaf_stack_push(&pool[order], (struct sheaf *)(void *)at);
    atomic_fetch_add(&cut, PIECE / bytes);
    return (struct sheaf *)(void *)start;
}

struct sheaf *empty_sheaf_alloc(unsigned capacity)
{
    unsigned order = sheaf_order_for(capacity);
    struct sheaf *sheaf = sheaf_stack_pop(&pool[order]);
    if (!sheaf)
        sheaf = cut_piece(order);
    if (!sheaf)
        return NULL;
    /* remove the mark of the capacity that the sheaf had before */
    if (sheaf->capacity && sheaf->capacity != capacity)
        sheaf->objects[sheaf->capacity] = NULL;
    sheaf->capacity = (uint16_t)capacity;
    sheaf->count = 0;
    sheaf->objects[capacity] = (void *)sheaf_full_mark();
    return sheaf;
}

void empty_sheaf_free(struct sheaf *sheaf)
{
    sheaf_assert(sheaf->count == 0);
    sheaf_stack_push(&pool[sheaf_order(sheaf)], sheaf);
}

uint64_t sheaf_pool_bytes(void)
{
    return atomic_load_explicit(&pieces, memory_order_relaxed) * PIECE;
}

uint64_t sheaf_pool_cut(void)
{
    return atomic_load_explicit(&cut, memory_order_relaxed);
}

/* ---- walks ---- */

#define LEAST         (8ul << SHEAF_ORDER_MIN)
#define PIECE_NUMBERS (PIECE / LEAST)

apart void sheaf_stack_each(struct sheaf_stack *stack, sheaf_visitor *visit, void *with)
{
    uint32_t offset = (uint32_t)atomic_load(&stack->head);
    for (uint64_t n = sheaf_pool_cut(); offset && n; n--) {
        struct sheaf *sheaf = sheaf_at(offset);
        offset = read_once(sheaf->next);
        visit(sheaf, with);
    }
}

apart void sheaf_pool_each(sheaf_visitor *visit, void *with)
{
    for (unsigned order = SHEAF_ORDER_MIN; order <= SHEAF_ORDER_MAX; order++)
        sheaf_stack_each(&pool[order], visit, with);
}

/* The order of a piece is 0 until it is cut. */
apart void sheaf_each(sheaf_visitor *visit, void *with)
{
    for (uint64_t piece = 0; piece < atomic_load(&pieces); piece++) {
        char *start = piece_at(piece), *at = start;
        while (start && at < start + PIECE && *sheaf_order_at(start)) {
            struct sheaf *sheaf = (struct sheaf *)(void *)at;
            at += 8ul << sheaf_order(sheaf);
            visit(sheaf, with);
        }
    }
}

apart size_t sheaf_numbers(void)
{
    return atomic_load(&pieces) * PIECE_NUMBERS;
}

apart size_t sheaf_number(const struct sheaf *sheaf)
{
    const char *at = (const char *)sheaf;
    bool first = at >= space.sheaves_first;
    return (size_t)(at - (first ? space.sheaves_first : space.sheaves.start)) / LEAST +
           (first ? 0 : space.sheaves_first_size / PIECE * PIECE_NUMBERS);
}

void sheaf_slim(void)
{
    space_shorten(&space.boot_sheaves, (size_t)atomic_load(&pieces) * PIECE);
}
