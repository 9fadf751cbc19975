#include "diagnostics/feature/depot.h"
#include "platform/os/stack.h"
#include "platform/os/vm.h"

#include <string.h>

#define DEPOT_BYTES (64ul << 20) /* of address space, enough for some 400 000 stacks */
#define CHAINS      16384u

struct depot {
    _Atomic uint32_t chains[CHAINS];
    _Atomic uint64_t used; /* bytes of the depot that are taken, this head included */
};

static struct depot *_Atomic depot;

/* Two threads may map a depot at once; one of them unmaps its own again. */
static struct depot *get_depot(void)
{
    struct depot *there = atomic_load_explicit(&depot, memory_order_acquire);
    if (likely(there != NULL))
        return there;
    struct depot *new = vm_map_staged(DEPOT_BYTES, 4096);
    if (!new)
        return NULL;
    if (vm_commit(new, sizeof(*new))) {
        atomic_store_explicit(&new->used, round_up(sizeof(*new), 64), memory_order_relaxed);
        if (atomic_compare_exchange_strong(&depot, &there, new))
            return new;
    }
    vm_unmap(new, DEPOT_BYTES);
    return there;
}

static struct depot_stack *at(const struct depot *d, uint32_t reference)
{
    return (struct depot_stack *)((uintptr_t)d + (uintptr_t)reference * 8);
}

struct depot_stack *depot_stack(uint32_t reference)
{
    struct depot *d = atomic_load_explicit(&depot, memory_order_acquire);
    return reference && d ? at(d, reference) : NULL;
}

static size_t bytes_of(unsigned depth)
{
    return sizeof(struct depot_stack) + depth * sizeof(uintptr_t);
}

static uint32_t find(const struct depot *d, uint32_t reference, uint64_t hash, const uintptr_t *pcs, unsigned depth)
{
    for (; reference; reference = at(d, reference)->next) {
        const struct depot_stack *stack = at(d, reference);
        if (stack->hash == hash && stack->depth == depth && !memcmp(stack->pcs, pcs, depth * sizeof(*pcs)))
            return reference;
    }
    return 0;
}

static uint32_t add(struct depot *d, _Atomic uint32_t *chain, uint64_t hash, const uintptr_t *pcs, unsigned depth)
{
    size_t bytes = bytes_of(depth);
    uint64_t start = atomic_load(&d->used);
    do {
        if (start + bytes > DEPOT_BYTES || !vm_commit((char *)d + start, bytes))
            return 0;
    } while (!atomic_compare_exchange_weak(&d->used, &start, start + bytes));
    uint32_t reference = (uint32_t)(start / 8);
    struct depot_stack *stack = at(d, reference);
    stack->hash = hash;
    stack->depth = depth;
    memcpy(stack->pcs, pcs, depth * sizeof(*pcs));
    uint32_t first = atomic_load(chain);
    do {
        stack->next = first;
    } while (!atomic_compare_exchange_weak(chain, &first, reference));
    return reference;
}

uint32_t depot_here(void)
{
    uintptr_t pcs[STACK_MOST];
    unsigned depth = stack_walk(pcs, STACK_MOST);
    struct depot *d = depth ? get_depot() : NULL;
    if (!d)
        return 0;
    uint64_t hash = stack_hash(pcs, depth);
    _Atomic uint32_t *chain = &d->chains[hash % CHAINS];
    uint32_t known = find(d, atomic_load_explicit(chain, memory_order_acquire), hash, pcs, depth);
    return likely(known) ? known : add(d, chain, hash, pcs, depth);
}

void depot_each(void (*visit)(struct depot_stack *stack, void *with), void *with)
{
    struct depot *d = atomic_load_explicit(&depot, memory_order_acquire);
    for (unsigned i = 0; d && i < CHAINS; i++)
        for (uint32_t reference = atomic_load(&d->chains[i]); reference; reference = at(d, reference)->next)
            visit(at(d, reference), with);
}
