#include "region/outside.h"
#include "space/space.h"
#include "os/vm.h"

/*
 * A hash table by address with open addressing. Entries are claimed and released by compare-and-swap. Callers only
 * search for blocks that they own, so an entry that changes meanwhile belongs to another block. A used entry never
 * becomes NEVER again, so that a search does not end before the entries that were added behind it.
 */
enum { NEVER = 0, BUSY = 1, USED = 2 };

static _Atomic size_t bytes;

static uint32_t hash(uintptr_t start)
{
    return (uint32_t)((start >> 12) * 0x9e3779b97f4a7c15ull >> 32) & (OUTSIDE_MAX - 1);
}

/* The table is only readable until it is needed. Two threads may both open it. */
static bool ready(void)
{
    static _Atomic bool open;
    if (likely(atomic_load_explicit(&open, memory_order_relaxed)))
        return true;
    if (!vm_open(space.outside, OUTSIDE_MAX * sizeof(struct outside)))
        return false;
    atomic_store(&open, true);
    return true;
}

static bool add(uintptr_t start, size_t size)
{
    if (!ready())
        return false;
    for (uint32_t i = hash(start), n = 0; n < OUTSIDE_MAX / 2; i = (i + 1) & (OUTSIDE_MAX - 1), n++) {
        struct outside *entry = &space.outside[i];
        uintptr_t seen = atomic_load_explicit(&entry->start, memory_order_relaxed);
        if ((seen != NEVER && seen != USED) || !atomic_compare_exchange_strong(&entry->start, &seen, BUSY))
            continue;
        atomic_store(&entry->size, size);
        atomic_store(&entry->start, start);
        atomic_fetch_add(&bytes, size);
        return true;
    }
    return false;
}

static struct outside *find(const void *p)
{
    uint32_t i = hash((uintptr_t)p), n = (uintptr_t)p > USED ? OUTSIDE_MAX / 2 : 0;
    for (; n; i = (i + 1) & (OUTSIDE_MAX - 1), n--) {
        uintptr_t start = atomic_load_explicit(&space.outside[i].start, memory_order_relaxed);
        if (start == (uintptr_t)p)
            return &space.outside[i];
        if (start == NEVER)
            break;
    }
    return NULL;
}

/* Between two threads that free the same block, the exchange decides: the second one finds no block. */
static struct outside *take(const void *p)
{
    struct outside *entry = find(p);
    uintptr_t start = (uintptr_t)p;
    return entry && atomic_compare_exchange_strong(&entry->start, &start, BUSY) ? entry : NULL;
}

static void give_up(struct outside *entry)
{
    atomic_fetch_sub(&bytes, atomic_load(&entry->size));
    atomic_store(&entry->start, USED);
}

/* If even munmap is refused (too many mappings), at least the pages are returned. */
static void unmap(void *p, size_t size)
{
    if (!vm_unmap(p, size))
        vm_discard(p, size);
}

void *outside_alloc(size_t size, size_t align)
{
    size = round_up(size, space.page_size);
    void *p = vm_map(size, align);
    if (!p || add((uintptr_t)p, size))
        return p;
    unmap(p, size);
    return NULL;
}

/*
 * Moves to a mapping that is entered in the table before the pages move, so that they cannot be lost. mremap() may
 * have unmapped the target before it fails, and another mapping may be there by then. So the target is only
 * unmapped if it could be mapped anew; what is still mapped is abandoned.
 */
static void *move_to_new(void *p, size_t old, size_t size)
{
    void *to = outside_alloc(size, 1);
    if (!to || vm_resize(p, old, size, to))
        return to;
    if (vm_extend(to, size) == VM_EXTENDED)
        unmap(to, size);
    struct outside *entry = take(to);
    if (entry)
        give_up(entry);
    return NULL;
}

void *outside_resize(void *p, size_t size)
{
    struct outside *entry = take(p);
    size = round_up(size, space.page_size);
    if (!entry)
        return NULL;
    size_t old = atomic_load(&entry->size);
    bool stays = vm_resize(p, old, size, NULL);
    void *to = stays ? p : move_to_new(p, old, size);
    if (to && !stays) {
        give_up(entry);
        return to;
    }
    if (stays) {
        atomic_fetch_add(&bytes, size - old);
        atomic_store(&entry->size, size);
    }
    atomic_store(&entry->start, (uintptr_t)p);
    return to;
}

size_t outside_size(const void *p)
{
    struct outside *entry = find(p);
    return entry ? atomic_load(&entry->size) : 0;
}

bool outside_free(void *p)
{
    struct outside *entry = take(p);
    if (!entry)
        return false;
    unmap(p, atomic_load(&entry->size));
    give_up(entry);
    return true;
}

void outside_each(void (*visit)(const void *start, size_t size, void *with), void *with)
{
    for (uint32_t i = 0; i < OUTSIDE_MAX; i++) {
        uintptr_t start = atomic_load(&space.outside[i].start);
        if (start > USED)
            visit((const void *)start, atomic_load(&space.outside[i].size), with);
    }
}

size_t outside_bytes(void)
{
    return atomic_load_explicit(&bytes, memory_order_relaxed);
}
