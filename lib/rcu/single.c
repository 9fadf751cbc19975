#include "rcu/rcu.h"

#include <stdlib.h>

/*
 * Objects that wait singly: those of another malloc, and those for which there was no memory for a sheaf. They
 * form a stack that is pushed to singly and taken as a whole. Everything here may run in signal handlers, except
 * that an object without a head makes single_put() call malloc.
 */
struct single {
    struct single *next;
    uintptr_t object; /* plus 1 if this struct lies outside the object and must be freed as well */
};
_Static_assert(sizeof(struct single) == 16, "as sheaf/rcu.h promises");

static struct single *_Atomic waiting;
static struct single *in_grace;
static _Atomic uint64_t count;

bool single_put(void *p, void *head)
{
    struct single *single = head ? head : malloc(sizeof(*single));
    if (!single)
        return false;
    single->object = (uintptr_t)p + !head;
    single->next = atomic_load(&waiting);
    while (!atomic_compare_exchange_weak(&waiting, &single->next, single)) {
    }
    atomic_fetch_add(&count, 1);
    return true;
}

bool single_collect(void)
{
    struct single *more = atomic_exchange(&waiting, NULL), **end = &more;
    while (*end && in_grace) /* left behind by a thread that does not exist in this forked child */
        end = &(*end)->next;
    if (in_grace)
        *end = in_grace;
    in_grace = more;
    return in_grace != NULL;
}

static void free_object(void *p)
{
    const struct sheaf_rcu_allocator *allocator = allocator_of(p);
    if (allocator)
        allocator->free(p);
    else
        free(p);
}

void single_finish(void)
{
    while (in_grace) {
        struct single *single = in_grace;
        uintptr_t object = single->object;
        in_grace = single->next;
        if (object & 1)
            free(single);
        free_object((void *)(object & ~(uintptr_t)1));
        atomic_fetch_sub(&count, 1);
    }
}

uint64_t single_count(void)
{
    return atomic_load(&count);
}
