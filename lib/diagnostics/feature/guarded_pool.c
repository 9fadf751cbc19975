#include "diagnostics/feature/guarded_pool.h"
#include "diagnostics/feature/debug_report.h"
#include "diagnostics/feature/depot.h"
#include "platform/os/message.h"
#include "memory/space/internal.h"
#include "platform/os/random.h"
#include "platform/os/syscall.h"
#include "platform/os/vm.h"

#include <stdlib.h>
#include <string.h>

#define REST 0xbb /* fills the page around the object; checked when the object is freed */

enum state { EMPTY, BUSY, LIVE, FREED };

struct owner {
    uint32_t thread, stack;
};

/* Slot i has page 2i + 1 of the pool; the pages with even numbers always stay closed. */
struct slot_state {
    _Atomic uint32_t state;
    uint32_t size;
    char *object;
    struct owner allocated, freed;
};

uintptr_t pool_start, pool_bytes;

static struct {
    struct slot_state *slots;
    size_t page;
    bool all_come_by;
    uint32_t every;
    _Atomic int64_t left; /* requests until the next sample */
    _Atomic uint32_t turn;
    _Atomic uint64_t live;
} pool;

void pool_init(uint32_t n, bool all_come_by)
{
    pool.all_come_by = all_come_by;
    pool.page = vm_page_size();
    size_t bytes = (2 * POOL_SLOTS + 1) * pool.page;
    char *pages = vm_map(bytes, pool.page);
    struct slot_state *slots = vm_map(round_up(POOL_SLOTS * sizeof(*slots), pool.page), pool.page);
    if (!pages || !slots || !vm_close(pages, bytes))
        return;
    internal_note(slots, POOL_SLOTS * sizeof(*slots));
    pool.slots = slots;
    pool.every = n;
    pool.left = (int64_t)(random_next() % n) + 1;
    pool_start = (uintptr_t)pages;
    pool_bytes = bytes;
}

void pool_passed(uint64_t requests)
{
    if (!pool.all_come_by)
        atomic_fetch_sub_explicit(&pool.left, (int64_t)requests, memory_order_relaxed);
}

/*
 * The distance between samples is random, from 1 to 2N - 1, so that no pattern of the program evades sampling.
 * Requests served since the sample was due count towards the next one; otherwise fewer than one in N would be
 * sampled.
 */
static bool due(void)
{
    int64_t left = atomic_fetch_sub_explicit(&pool.left, 1, memory_order_relaxed) - 1;
    if (likely(left > 0) || !pool.slots)
        return false;
    int64_t late = -left < (int64_t)pool.every ? -left : (int64_t)pool.every;
    int64_t next = (int64_t)(random_next() % (2ull * pool.every - 1)) + 1;
    atomic_store_explicit(&pool.left, next - late, memory_order_relaxed);
    return true;
}

static char *page_of(const struct slot_state *slot)
{
    return (char *)pool_start + (2 * (size_t)(slot - pool.slots) + 1) * pool.page;
}

/* The slot of an address: that of its page or, for a closed page, the nearer neighbour's. */
static struct slot_state *slot_of(const void *p)
{
    uintptr_t offset = (uintptr_t)p - pool_start, page = offset / pool.page;
    if (page % 2)
        return &pool.slots[page / 2];
    bool upper = offset % pool.page >= pool.page / 2;
    uintptr_t at = page / 2 + upper;
    return &pool.slots[at == 0 ? 0 : at > POOL_SLOTS ? POOL_SLOTS - 1 : at - 1];
}

static struct slot_state *claim(void)
{
    for (unsigned i = 0; i < POOL_SLOTS; i++) {
        struct slot_state *slot = &pool.slots[atomic_fetch_add(&pool.turn, 1) % POOL_SLOTS];
        uint32_t state = atomic_load(&slot->state);
        if ((state == EMPTY || state == FREED) && atomic_compare_exchange_strong(&slot->state, &state, BUSY))
            return slot;
    }
    return NULL;
}

static struct owner self(void)
{
    return (struct owner){.thread = (uint32_t)sys_call3(SYS_gettid, 0, 0, 0), .stack = depot_here()};
}

/* Half of the objects are placed at the end of the page, as far as alignment allows, the others at its start. */
static char *place(char *page, size_t n, size_t align)
{
    size_t least = n <= 8 ? 8 : 16;
    return random_next() >> 63 ? page : page + pool.page - round_up(n, align > least ? align : least);
}

void *pool_alloc(size_t n, size_t align)
{
    n += !n;
    if (!due() || n > pool.page || align > pool.page)
        return NULL;
    struct slot_state *slot = claim();
    if (!slot)
        return NULL;
    char *page = page_of(slot);
    if (!vm_open(page, pool.page)) {
        atomic_store(&slot->state, EMPTY);
        return NULL;
    }
    slot->object = place(page, n, align);
    slot->size = (uint32_t)n;
    slot->allocated = self();
    memset(page, REST, (size_t)(slot->object - page));
    memset(slot->object + n, REST, (size_t)(page + pool.page - slot->object) - n);
    memset(slot->object, 0, n);
    atomic_fetch_add(&pool.live, n);
    atomic_store(&slot->state, LIVE);
    return slot->object;
}

uint64_t pool_live_bytes(void)
{
    return atomic_load(&pool.live);
}

void pool_each(void (*visit)(const void *object, size_t size, uint32_t stack, void *with), void *with)
{
    for (unsigned i = 0; pool.slots && i < POOL_SLOTS; i++) {
        const struct slot_state *slot = &pool.slots[i];
        if (atomic_load(&slot->state) == LIVE)
            visit(slot->object, slot->size, slot->allocated.stack, with);
    }
}

/* ---- reports ---- */

static void report_owner(const char *what, const struct owner *owner)
{
    struct message m = {.length = 0};
    message_text(&m, "sheaf:   ");
    message_text(&m, what);
    message_text(&m, " by thread ");
    message_number(&m, owner->thread);
    message_text(&m, owner->stack ? ":" : "");
    debug_write(&m);
    debug_write_stack(owner->stack, "    ");
}

static void report(const char *kind, const void *p, const struct slot_state *slot)
{
    struct message m = {.length = 0};
    message_text(&m, "sheaf: ");
    message_text(&m, kind);
    message_text(&m, " ");
    message_pointer(&m, p);
    message_text(&m, " (sampled: ");
    message_number(&m, slot->size);
    message_text(&m, " bytes at ");
    message_pointer(&m, slot->object);
    message_text(&m, ")");
    debug_write(&m);
    if (slot->object)
        report_owner("allocated", &slot->allocated);
    if (atomic_load(&slot->state) == FREED)
        report_owner("freed", &slot->freed);
}

static noinline_cold _Noreturn void die(const char *kind, const void *p, const struct slot_state *slot)
{
    report(kind, p, slot);
    abort();
}

void pool_report(const void *address)
{
    const struct slot_state *slot = slot_of(address);
    const char *kind = "access to unused memory at";
    if (atomic_load(&slot->state) == FREED)
        kind = "access after free at";
    else if (atomic_load(&slot->state) == LIVE)
        kind = (const char *)address < slot->object ? "access before the start at" : "access past the end at";
    report(kind, address, slot);
}

/* ---- size and free ---- */

static const char *changed(const char *from, const char *to)
{
    while (from < to && (unsigned char)*from == REST)
        from++;
    return from < to ? from : NULL;
}

static void check_rest(const struct slot_state *slot)
{
    const char *page = page_of(slot);
    const char *before = changed(page, slot->object);
    const char *behind = changed(slot->object + slot->size, page + pool.page);
    if (unlikely(before != NULL))
        die("write before the start at", before, slot);
    if (unlikely(behind != NULL))
        die("write past the end at", behind, slot);
}

size_t pool_size(const void *p)
{
    const struct slot_state *slot = slot_of(p);
    if (unlikely(slot->object != p || atomic_load(&slot->state) != LIVE))
        die(slot->object != p ? "use of interior pointer" : "use after free of", p, slot);
    return slot->size;
}

/* The page is closed before the state becomes FREED, because the next owner of the slot opens it again. */
void pool_free(void *p)
{
    struct slot_state *slot = slot_of(p);
    uint32_t live = LIVE;
    if (unlikely(slot->object != p))
        die("free of interior pointer", p, slot);
    if (unlikely(!atomic_compare_exchange_strong(&slot->state, &live, BUSY)))
        die("double free of", p, slot);
    check_rest(slot);
    slot->freed = self();
    atomic_fetch_sub(&pool.live, slot->size);
    char *page = page_of(slot);
    bool closed = vm_discard(page, pool.page) && vm_close(page, pool.page);
    if (closed) /* otherwise the slot is never used again */
        atomic_store(&slot->state, FREED);
}
