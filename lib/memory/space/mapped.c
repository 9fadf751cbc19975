#include "memory/space/mapped.h"
#include "platform/config/config.h"
#include "platform/os/vm.h"

#include <string.h>

/*
 * A hash table by address with open addressing. Entries are claimed and released by compare-and-swap. Callers only
 * search for blocks that they own, so an entry that changes meanwhile belongs to another block. A used entry never
 * becomes NEVER again, so that a search does not end before the entries that were added behind it.
 */
enum { NEVER = 0, BUSY = 1, USED = 2 };

static _Atomic size_t bytes;

static uint32_t hash(uintptr_t start)
{
    return (uint32_t)((start >> 12) * 0x9e3779b97f4a7c15ull >> 32) & (space.mapped_most - 1);
}

/*
 * The table is only readable until it is needed, and not mapped where memory is locked. Two threads may both open it:
 * there one of them is refused the place, and waits a little for the other. If that is the code that this handler
 * interrupted, the block is refused.
 */
static bool ready(void)
{
    if (likely(atomic_load_explicit(&space.mapped_open, memory_order_acquire)))
        return true;
    size_t size = space.mapped_most * sizeof(struct mapped);
    if (space.lean ? vm_extend(space.mapped, size) != VM_EXTENDED : !vm_open(space.mapped, size)) {
        for (int i = 0; i < 10000 && !atomic_load(&space.mapped_open); i++) {
        }
        return atomic_load(&space.mapped_open);
    }
    atomic_store(&space.mapped_open, true);
    return true;
}

static bool add(uintptr_t start, size_t size)
{
    if (!ready())
        return false;
    for (uint32_t i = hash(start), n = 0; n < space.mapped_most / 2; i = (i + 1) & (space.mapped_most - 1), n++) {
        struct mapped *entry = &space.mapped[i];
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

static struct mapped *find(uintptr_t of)
{
    if (!atomic_load_explicit(&space.mapped_open, memory_order_acquire))
        return NULL;
    uint32_t i = hash(of), n = of > USED ? space.mapped_most / 2 : 0;
    for (; n; i = (i + 1) & (space.mapped_most - 1), n--) {
        uintptr_t start = atomic_load_explicit(&space.mapped[i].start, memory_order_relaxed);
        if (start == of)
            return &space.mapped[i];
        if (start == NEVER)
            break;
    }
    return NULL;
}

/* Between two threads that free the same block, the exchange decides: the second one finds no block. */
static struct mapped *take(const void *p)
{
    uintptr_t start = (uintptr_t)p;
    struct mapped *entry = find(start);
    return entry && atomic_compare_exchange_strong(&entry->start, &start, BUSY) ? entry : NULL;
}

static void give_up(struct mapped *entry)
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

/* ---- large blocks ---- */

void *mapped_alloc(size_t size, size_t align)
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
    void *to = mapped_alloc(size, 1);
    if (!to || vm_resize(p, old, size, to))
        return to;
    if (vm_extend(to, size) == VM_EXTENDED)
        unmap(to, size);
    struct mapped *entry = take(to);
    if (entry)
        give_up(entry);
    return NULL;
}

void *mapped_resize(void *p, size_t size)
{
    struct mapped *entry = take(p);
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

/* ---- small blocks ---- */

/*
 * A chunk has blocks of one size, at multiples of the size from its start, so that they are aligned as the objects of
 * slabs are. Its head takes the place of the first ones. The table knows a chunk by its address plus IS_CHUNK. Chunks
 * stay mapped, and in the list of their kind, so no thread can meet one that is gone. A bit of `busy` that changes
 * from 0 to 1 is an allocation, and the opposite is a free: the thread that changed the bit did it. Bits that are no
 * block are always 1. Nothing here waits: a thread may be preempted, and a handler or a fork may interrupt it,
 * between any two steps. At worst a chunk that the thread has mapped is not entered, or a block that it took is lost
 * to a forked child.
 */
#define CHUNK     SLICE_SIZE
#define IS_CHUNK  4u
#define SCAN_MOST 4 /* chunks, before another one is mapped */
#define SMALL_MIN 16u

struct chunk {
    struct chunk *next;
    uint32_t size, first, end; /* bytes of a block; its blocks have the numbers first to end - 1 */
    uint32_t kind;
    _Atomic uint32_t used;
    _Atomic uint64_t busy[CHUNK / SMALL_MIN / 64];
};

static large_table struct kind {
    struct chunk *_Atomic all;
    struct chunk *_Atomic recent; /* probably has a free block */
    struct chunk *_Atomic next;   /* the search goes on here */
} kinds[MAPPED_KINDS];

static uint64_t no_blocks(const struct chunk *chunk, uint32_t word)
{
    uint64_t none = 0;
    for (uint32_t bit = 0; bit < 64; bit++)
        if (word * 64 + bit < chunk->first || word * 64 + bit >= chunk->end)
            none |= 1ull << bit;
    return none;
}

static struct chunk *new_chunk(unsigned kind, uint32_t size)
{
    struct chunk *chunk = vm_map(CHUNK, CHUNK);
    if (!chunk)
        return NULL;
    chunk->kind = kind;
    chunk->size = size;
    chunk->first = (uint32_t)(sizeof(*chunk) + size - 1) / size;
    chunk->end = (uint32_t)CHUNK / size;
    for (uint32_t word = 0; word < array_size(chunk->busy); word++)
        chunk->busy[word] = no_blocks(chunk, word);
    if (!add((uintptr_t)chunk | IS_CHUNK, 0)) {
        unmap(chunk, CHUNK);
        return NULL;
    }
    chunk->next = atomic_load(&kinds[kind].all);
    while (!atomic_compare_exchange_weak(&kinds[kind].all, &chunk->next, chunk)) {
    }
    return chunk;
}

static void *take_small(struct chunk *chunk)
{
    for (uint32_t word = 0; chunk && word * 64 < chunk->end; word++) {
        uint64_t seen = atomic_load_explicit(&chunk->busy[word], memory_order_relaxed);
        while (~seen) {
            uint64_t bit = ~seen & -~seen;
            seen = atomic_fetch_or(&chunk->busy[word], bit);
            if (seen & bit)
                continue;
            atomic_fetch_add(&chunk->used, 1);
            atomic_fetch_add(&bytes, chunk->size);
            return (char *)chunk + (size_t)(word * 64 + (uint32_t)__builtin_ctzll(bit)) * chunk->size;
        }
    }
    return NULL;
}

void *mapped_small(unsigned kind, size_t size)
{
    if (size < SMALL_MIN || size > MAPPED_SMALL)
        return NULL;
    struct kind *of = &kinds[kind];
    struct chunk *chunk = atomic_load(&of->recent);
    void *p = take_small(chunk);
    for (int i = 0; !p && chunk && i < SCAN_MOST; i++) {
        chunk = atomic_load(&of->next);
        chunk = chunk ? chunk : atomic_load(&of->all);
        atomic_store(&of->next, chunk->next);
        p = take_small(chunk);
    }
    if (!p)
        p = take_small(chunk = new_chunk(kind, (uint32_t)size));
    if (p && chunk != atomic_load(&of->recent))
        atomic_store(&of->recent, chunk);
    return p;
}

/* The chunk that has a block in use at this address, and the number of the block; or NULL. */
static struct chunk *chunk_of(const void *p, uint32_t *block)
{
    uintptr_t start = (uintptr_t)p & ~(CHUNK - 1);
    if (!start || !find(start | IS_CHUNK))
        return NULL;
    struct chunk *chunk = (void *)start;
    uint32_t at = (uint32_t)((uintptr_t)p - start);
    *block = at / chunk->size;
    bool block_starts = at % chunk->size == 0 && *block >= chunk->first && *block < chunk->end;
    return block_starts && atomic_load(&chunk->busy[*block / 64]) >> *block % 64 & 1 ? chunk : NULL;
}

/* Returns the pages of a chunk without blocks, but the first. All its blocks are taken meanwhile, if they can be. */
static void discard_empty(struct chunk *chunk)
{
    uint32_t words = (chunk->end + 63) / 64, taken = 0;
    while (taken < words) {
        uint64_t none = no_blocks(chunk, taken);
        if (!atomic_compare_exchange_strong(&chunk->busy[taken], &none, ~0ull))
            break;
        taken++;
    }
    if (taken == words)
        vm_discard((char *)chunk + space.page_size, CHUNK - space.page_size);
    while (taken-- > 0)
        atomic_store(&chunk->busy[taken], no_blocks(chunk, taken));
}

static bool free_small(void *p)
{
    uint32_t block;
    struct chunk *chunk = chunk_of(p, &block);
    if (!chunk)
        return false;
    if (sheaf_config.harden.zero_free)
        memset(p, 0, chunk->size);
    uint64_t bit = 1ull << block % 64;
    if (!(atomic_fetch_and(&chunk->busy[block / 64], ~bit) & bit))
        return false;
    atomic_fetch_sub(&bytes, chunk->size);
    uint32_t used = atomic_fetch_sub(&chunk->used, 1);
    struct kind *kind = &kinds[chunk->kind];
    struct chunk *empty = used == 1 && chunk != atomic_load(&kind->recent) ? chunk : NULL;
    if (used == chunk->end - chunk->first)
        empty = atomic_exchange(&kind->recent, chunk);
    if (empty && !atomic_load(&empty->used))
        discard_empty(empty);
    return true;
}

static void each_small(const struct chunk *chunk, void (*visit)(const void *start, size_t size, void *with),
                       void *with)
{
    for (uint32_t i = chunk->first; i < chunk->end; i++)
        if (atomic_load(&chunk->busy[i / 64]) >> i % 64 & 1)
            visit((const char *)chunk + (size_t)i * chunk->size, chunk->size, with);
}

/* ---- all blocks ---- */

size_t mapped_size(const void *p)
{
    uint32_t block;
    struct mapped *entry = find((uintptr_t)p);
    if (entry)
        return atomic_load(&entry->size);
    const struct chunk *chunk = chunk_of(p, &block);
    return chunk ? chunk->size : 0;
}

bool mapped_free(void *p)
{
    struct mapped *entry = take(p);
    if (!entry)
        return free_small(p);
    unmap(p, atomic_load(&entry->size));
    give_up(entry);
    return true;
}

void mapped_each(void (*visit)(const void *start, size_t size, void *with), void *with)
{
    uint32_t most = atomic_load(&space.mapped_open) ? space.mapped_most : 0;
    for (uint32_t i = 0; i < most; i++) {
        uintptr_t start = atomic_load(&space.mapped[i].start);
        if (start & IS_CHUNK)
            each_small((const void *)(start - IS_CHUNK), visit, with);
        else if (start > USED)
            visit((const void *)start, atomic_load(&space.mapped[i].size), with);
    }
}

size_t mapped_bytes(void)
{
    return atomic_load_explicit(&bytes, memory_order_relaxed);
}
