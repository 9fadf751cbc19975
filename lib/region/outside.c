#include "region/outside.h"
#include "region/space.h"
#include "os/vm.h"

/*
 * Entries are claimed and given up by compare-and-swap; a reader can only be interested in a block that its caller
 * owns, so an entry that changes meanwhile is not the one. No lock: this is also the way around the region's lock.
 */
static _Atomic size_t bytes;
static _Atomic uint32_t top; /* entries above were never used */

static struct outside *claim(void)
{
    for (uint32_t i = 0; i < OUTSIDE_MAX; i++) {
        struct outside *entry = &space.outside[i];
        uintptr_t none = 0;
        if (!atomic_compare_exchange_strong(&entry->start, &none, 1))
            continue;
        uint32_t seen = atomic_load(&top);
        while (seen <= i && !atomic_compare_exchange_weak(&top, &seen, i + 1)) {
        }
        return entry;
    }
    return NULL;
}

void *outside_alloc(size_t size, size_t align)
{
    size = round_up(size, space.page_size);
    struct outside *entry = claim();
    if (!entry)
        return NULL;
    void *p = vm_map(size, align);
    atomic_store(&entry->size, size);
    atomic_store(&entry->start, (uintptr_t)p);
    if (p)
        atomic_fetch_add(&bytes, size);
    return p;
}

static struct outside *find(const void *p)
{
    uint32_t n = atomic_load(&top);
    for (uint32_t i = 0; i < n; i++)
        if (atomic_load_explicit(&space.outside[i].start, memory_order_relaxed) == (uintptr_t)p)
            return &space.outside[i];
    return NULL;
}

size_t outside_size(const void *p)
{
    struct outside *entry = (uintptr_t)p > 1 ? find(p) : NULL;
    return entry ? atomic_load(&entry->size) : 0;
}

/* The exchange decides between two threads that free the same block: the second one sees no block. */
bool outside_free(void *p)
{
    struct outside *entry = (uintptr_t)p > 1 ? find(p) : NULL;
    uintptr_t start = (uintptr_t)p;
    if (!entry || !atomic_compare_exchange_strong(&entry->start, &start, 1))
        return false;
    size_t size = atomic_load(&entry->size);
    /* When even munmap is refused (too many mappings), let at least the pages go. */
    if (!vm_unmap(p, size))
        vm_discard(p, size);
    atomic_fetch_sub(&bytes, size);
    atomic_store(&entry->start, 0);
    return true;
}

size_t outside_bytes(void)
{
    return atomic_load_explicit(&bytes, memory_order_relaxed);
}
