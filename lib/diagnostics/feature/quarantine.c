#include "diagnostics/feature/quarantine.h"
#include "diagnostics/feature/debug.h"
#include "diagnostics/feature/harden.h"
#include "cache/misuse.h"
#include "memory/space/internal.h"
#include "platform/os/vm.h"
#include "cache/free.h"

#include <string.h>

#define PATTERN      0x6b /* the kernel's value; eight such bytes are no valid address */
#define LEAST        1024 /* entries */
#define MOST         (1u << 20)
#define MEAN         256 /* bytes of an entry that the ring is sized for */
#define RELEASE_MOST 64  /* released by one free, so that none takes long after a large block has left */

static struct {
    _Atomic uintptr_t *entries; /* NULL: no quarantine */
    size_t bound;
    uint32_t mask;
    _Atomic uint64_t tail, head; /* entries written; entries considered for release */
    _Atomic int64_t bytes;
    void (*release_large)(void *p);
} ring;

_Atomic uint64_t quarantine_large_blocks, quarantine_large_bytes;

void quarantine_init(size_t bytes)
{
    uint32_t n = LEAST;
    while (n < MOST && n < bytes / MEAN)
        n *= 2;
    ring.bound = bytes;
    ring.mask = n - 1;
    ring.entries = vm_map(n * sizeof(uintptr_t), 1);
    if (ring.entries)
        internal_note((const void *)ring.entries, n * sizeof(uintptr_t));
}

/* ---- the pattern ---- */

/* Whether a byte differs from the pattern; *first is then the offset of the first one. */
static bool changed(const void *object, size_t size, size_t *first)
{
    size_t end;
    return debug_differs(object, size, PATTERN, first, &end);
}

static bool is_waiting(const void *object)
{
    for (uint32_t i = 0; i <= ring.mask; i++)
        if (atomic_load_explicit(&ring.entries[i], memory_order_relaxed) == (uintptr_t)object)
            return true;
    return false;
}

/* ---- release ---- */

static void release_object(struct kmem_cache *cache, void *object)
{
    if (!harden_keeps(cache)) {
        size_t first;
        if (unlikely(changed(object, cache->slab.size, &first)))
            misuse_report("write to freed memory at", (char *)object + first, cache->name);
        if (sheaf_config.harden.zero_free)
            memset(object, 0, cache->slab.size);
    }
    __atomic_fetch_sub(&cache->waiting, 1, __ATOMIC_RELAXED);
    cache_free_raw(cache, object);
}

static void release(uintptr_t entry)
{
    void *p = (void *)entry;
    uintptr_t slice = slice_of(p);
    struct push_id id = slice_push_id(slice);
    if (id.at) {
        atomic_fetch_sub(&ring.bytes, cache_at(push_id_number(id))->slab.size);
        release_object(cache_at(push_id_number(id)), p);
        return;
    }
    size_t bytes = (size_t)slice_at(slice)->length << SLICE_SHIFT;
    atomic_fetch_sub(&ring.bytes, (int64_t)bytes);
    atomic_fetch_sub(&quarantine_large_bytes, bytes);
    atomic_fetch_sub(&quarantine_large_blocks, 1);
    ring.release_large(p);
}

/* Claim the position of the oldest entry for this thread. The entry may already be empty. Returns false if nothing
 * waits. */
static bool next_head(uint64_t *at)
{
    uint64_t head = atomic_load(&ring.head), tail;
    do {
        tail = atomic_load(&ring.tail);
        if (head >= tail)
            return false;
        *at = tail - head > ring.mask ? tail - ring.mask - 1 : head; /* older entries have been overwritten */
    } while (!atomic_compare_exchange_weak(&ring.head, &head, *at + 1));
    return true;
}

static void enter(void *p, size_t bytes)
{
    uint64_t at = atomic_fetch_add(&ring.tail, 1);
    atomic_fetch_add(&ring.bytes, (int64_t)bytes);
    uintptr_t oldest = atomic_exchange(&ring.entries[at & ring.mask], (uintptr_t)p);
    if (oldest)
        release(oldest);
    for (int i = 0; i < RELEASE_MOST && atomic_load(&ring.bytes) > (int64_t)ring.bound && next_head(&at); i++) {
        oldest = atomic_exchange(&ring.entries[at & ring.mask], 0);
        if (oldest)
            release(oldest);
    }
}

/* ---- the interface ---- */

/* An object that still holds the pattern may be waiting already, so the ring is searched for it. (If the pattern
 * is gone, the slab detects the double free when both entries have been released.) */
bool quarantine_object(struct kmem_cache *cache, void *object, bool keep)
{
    size_t size = cache->slab.size, first;
    if (!ring.entries || size > ring.bound)
        return false;
    if (unlikely(!keep && !changed(object, size, &first) && is_waiting(object)))
        misuse_report("double free of", object, cache->name);
    if (!keep)
        memset(object, PATTERN, size);
    __atomic_fetch_add(&cache->waiting, 1, __ATOMIC_RELAXED);
    enter(object, size);
    return true;
}

/* A block that would replace more than a quarter of the quarantine is not admitted. */
bool quarantine_takes(size_t bytes)
{
    return ring.entries && bytes <= ring.bound / 4;
}

void quarantine_large(void *p, size_t bytes, void (*release_large)(void *p))
{
    ring.release_large = release_large;
    atomic_fetch_add(&quarantine_large_bytes, bytes);
    atomic_fetch_add(&quarantine_large_blocks, 1);
    enter(p, bytes);
}

bool quarantine_waits(void)
{
    return atomic_load_explicit(&ring.bytes, memory_order_relaxed) > 0;
}

void quarantine_drain(struct kmem_cache *cache)
{
    if (!ring.entries || (cache && !read_once(cache->waiting)))
        return;
    for (uint32_t i = 0; i <= ring.mask; i++) {
        uintptr_t entry = atomic_load_explicit(&ring.entries[i], memory_order_relaxed);
        bool wanted = entry && (!cache || *slice_id(slice_of((void *)entry)) == cache->slab.id);
        if (wanted && atomic_compare_exchange_strong(&ring.entries[i], &entry, 0))
            release(entry);
    }
}

void quarantine_each(void (*visit)(const void *p, void *with), void *with)
{
    for (uint32_t i = 0; ring.entries && i <= ring.mask; i++) {
        uintptr_t entry = atomic_load_explicit(&ring.entries[i], memory_order_relaxed);
        if (entry)
            visit((const void *)entry, with);
    }
}
