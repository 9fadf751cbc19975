#include "memory/slab/retire.h"
#include "memory/slab/descriptor.h"
#include "platform/os/hooks.h"

/* Linked by `next`. Slabs are pushed singly and taken all at once, so ABA cannot occur. */
static _Atomic uint32_t retired;
static uint32_t in_grace;
static _Atomic uint64_t slabs;

void slab_retire(struct slab *slab)
{
    atomic_fetch_add(&slabs, 1);
    uint32_t head = atomic_load(&retired);
    do {
        slab->next = head;
    } while (!atomic_compare_exchange_weak(&retired, &head, slab->reference));
    if (hooks.slab_retired)
        hooks.slab_retired();
}

bool slab_retired_collect(void)
{
    uint32_t more = atomic_exchange(&retired, 0);
    if (more && in_grace) { /* left behind by a thread that does not exist in this forked child */
        struct slab *last = descriptor_of(more);
        while (last->next)
            last = descriptor_of(last->next);
        last->next = in_grace;
    }
    if (more)
        in_grace = more;
    return in_grace != 0;
}

void slab_retired_release(void)
{
    while (in_grace) {
        struct slab *slab = descriptor_of(in_grace);
        in_grace = slab->next;
        uint32_t slice = slab->slice;
        descriptor_free(slab);
        region_free(slice);
        atomic_fetch_sub(&slabs, 1);
    }
}

uint64_t slab_retired_count(void)
{
    return atomic_load_explicit(&slabs, memory_order_relaxed);
}
