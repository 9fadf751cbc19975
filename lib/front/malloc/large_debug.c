#include "front/malloc/large_debug.h"
#include "front/malloc/large.h"
#include "diagnostics/feature/debug_report.h"
#include "diagnostics/feature/debug_spec.h"
#include "platform/os/hooks.h"
#include "memory/space/mapped.h"

#include <string.h>

#define POISON_MOST (1ul << 20)
#define ZONE_ALIGN  256 /* the red zone extends to the next multiple */

slab_flags_t large_debug;

static const char name[] = "malloc-large";

static size_t zone(void)
{
    return large_debug & SLAB_RED_ZONE ? DEBUG_ZONE : 0;
}

static char *zone_end(char *p, size_t n)
{
    return zone() ? (char *)round_up((uintptr_t)p + n + DEBUG_ZONE, ZONE_ALIGN) : p + n;
}

/* The record of the block that starts at p; NULL when the block lies outside the region. */
static struct debug_object *record_of(const void *p, bool writable)
{
    return in_region(p) ? debug_of_slice((uint32_t)slice_of(p), writable) : NULL;
}

/*
 * Marks a live record as busy. Returns false if the block has no live record. The state is read first, because the
 * records of blocks for which the system granted none lie in pages that are not writable.
 */
static bool claim(struct debug_object *record)
{
    uint32_t live = OBJECT_LIVE;
    return atomic_load(&record->state) == OBJECT_LIVE &&
           atomic_compare_exchange_strong(&record->state, &live, OBJECT_BUSY);
}

static void begin(struct debug_object *record, char *p, size_t n, bool fresh)
{
    record->size = n;
    record->offset = 0;
    record->call = debug_next_call();
    record->freed = (struct track){.time = 0};
    if (zone())
        memset(p + n, BYTE_ZONE, (size_t)(zone_end(p, n) - (p + n)));
    if (fresh && large_debug & SLAB_POISON)
        memset(p, BYTE_FRESH, n < POISON_MOST ? n : POISON_MOST);
    debug_track(&record->allocated, large_debug);
    atomic_store_explicit(&record->state, OBJECT_LIVE, memory_order_release);
    atomic_store(&record->version, 2);
}

void *large_debug_alloc(size_t n, size_t align, bool zero)
{
    if (n > PTRDIFF_MAX)
        return NULL;
    n += !n; /* a size of 0 means that there is no block */
    char *p = large_plain_alloc(n + zone(), align, zero);
    struct debug_object *record = p ? record_of(p, true) : NULL;
    if (record)
        begin(record, p, n, !zero);
    return p;
}

static struct debug_report report_on(const char *kind, const struct debug_object *record, const void *p)
{
    return (struct debug_report){.kind = kind, .pointer = p, .cache = name, .record = record, .object = p};
}

static bool damaged(const struct debug_object *record, char *p, struct damage *damage)
{
    char *end = p + record->size;
    *damage = (struct damage){.at = end, .length = (size_t)(zone_end(p, record->size) - end), .byte = BYTE_ZONE};
    return debug_differs(end, damage->length, BYTE_ZONE, &damage->first, &damage->end);
}

static void check(const struct debug_object *record, char *p)
{
    struct damage damage;
    struct debug_report report = report_on("overflow: bytes were written past the end of", record, p);
    if (likely(!damaged(record, p, &damage)))
        return;
    report.damage = &damage;
    report.done = "not repaired: the red zone ends with the block";
    debug_report(&report);
}

static bool is_start(const void *p)
{
    return !((uintptr_t)p & (SLICE_SIZE - 1));
}

bool large_debug_free(void *p)
{
    struct debug_object *record = is_start(p) ? record_of(p, false) : NULL;
    if (!record || read_once(slice_at(slice_of(p))->kind) != SLICE_LARGE)
        record = NULL;
    else if (claim(record)) {
        check(record, p);
        if (large_debug & SLAB_POISON)
            memset(p, BYTE_FREED, record->size < POISON_MOST ? record->size : POISON_MOST);
        debug_track(&record->freed, large_debug);
        atomic_store_explicit(&record->state, OBJECT_FREE, memory_order_release);
        return true;
    }
    record = is_start(p) ? record_of(p, false) : NULL;
    if (!record || atomic_load(&record->state) != OBJECT_FREE || !record->freed.time)
        return true; /* nothing is known of it: large_plain_free() reports it */
    struct debug_report report = report_on("double free of", record, p);
    report.done = "ignored";
    debug_report(&report);
    return false;
}

/*
 * Resizes in place or by moving. The record is marked as freed beforehand, because once the old block is free its
 * record may belong to another thread.
 */
void *large_debug_resize(void *p, size_t n)
{
    struct debug_object *record = record_of(p, false);
    bool known = record && claim(record);
    if (n > PTRDIFF_MAX)
        n = PTRDIFF_MAX; /* makes the call below fail */
    if (known) {
        check(record, p);
        debug_track(&record->freed, large_debug);
        atomic_store_explicit(&record->state, OBJECT_FREE, memory_order_release);
    }
    char *to = large_plain_resize(p, n + zone());
    if (known && !to) {
        record->freed = (struct track){.time = 0};
        atomic_store_explicit(&record->state, OBJECT_LIVE, memory_order_release);
    }
    struct debug_object *now = to ? record_of(to, true) : NULL;
    if (now)
        begin(now, to, n, false);
    return to;
}

size_t large_debug_size(const void *p, size_t room)
{
    const struct debug_object *record = record_of(p, false);
    return record && atomic_load(&record->state) == OBJECT_LIVE ? record->size : room;
}

static unsigned validate(void)
{
    unsigned problems = 0;
    for (uint32_t slice = 0; slice < region_end(); slice++) {
        struct damage damage;
        const struct debug_object *record = debug_of_slice(slice, false);
        if (read_once(slice_at(slice)->kind) != SLICE_LARGE || atomic_load(&record->state) != OBJECT_LIVE ||
            !damaged(record, slice_address(slice), &damage) || atomic_load(&record->state) != OBJECT_LIVE)
            continue;
        struct debug_report report =
            report_on("overflow: bytes were written past the end of", record, slice_address(slice));
        report.damage = &damage;
        report.done = "not repaired: found by validation";
        debug_report_only(&report);
        problems++;
    }
    return problems;
}

void large_debug_start(void)
{
    slab_flags_t flags = debug_spec_flags(sheaf_config.debug, name) & DEBUG_CHECKS;
    if (!flags || !debug_start())
        return;
    hooks.validate_large = validate;
    large_debug = flags;
}
