/*
 * Walks over all objects of debugged caches: kmem_cache_validate(), validation at exit, and the report of live
 * objects. No lock is held: each object is checked in one state (debug_check()), and slabs that are created or
 * released meanwhile may be missed.
 */
#include "diagnostics/feature/debug.h"
#include "diagnostics/feature/debug_report.h"
#include "diagnostics/feature/depot.h"
#include "diagnostics/feature/instrument.h"
#include "platform/os/hooks.h"

#include <errno.h>
#include <stdlib.h>

#define STACKS_TOLD 50 /* most stacks in the report of live objects */

typedef void visitor(struct kmem_cache *cache, struct debug_place place, void *with);

static bool is_slab_of(const struct kmem_cache *cache, uint32_t slice)
{
    return read_once(*slice_id(slice)) == cache->slab.id && read_once(slice_at(slice)->kind) == SLICE_SLAB;
}

static void each_object(struct kmem_cache *cache, visitor *visit, void *with)
{
    for (uint32_t slice = 0; slice < region_end(); slice++)
        for (uint32_t i = 0; i < cache->slab.objects && is_slab_of(cache, slice); i++) {
            struct debug_place place = {debug_of_slice(slice, false) + i,
                                        (char *)slice_address(slice) + (size_t)i * cache->slab.size};
            visit(cache, place, with);
        }
}

static bool is_debugged(const struct kmem_cache *cache)
{
    return cache_in_use(cache) && cache->instruments & INSTRUMENT_DEBUG;
}

/* ---- validation ---- */

static void validate_one(struct kmem_cache *cache, struct debug_place place, void *with)
{
    struct debug_report report;
    struct damage damage;
    unsigned *problems = with;
    if (likely(!debug_check(cache, place, &report, &damage)))
        return;
    report.done = "not repaired: found by validation";
    debug_report_only(&report);
    ++*problems;
}

sheaf_export int kmem_cache_validate(struct kmem_cache *cache)
{
    unsigned problems = 0;
    if (!is_debugged(cache))
        return -EINVAL;
    each_object(cache, validate_one, &problems);
    return (int)problems;
}

/* ---- live objects ---- */

struct live {
    uint64_t bytes, count, stacks;
    struct depot_stack *largest;
};

static void add_record(struct live *live, const struct debug_object *record)
{
    if (atomic_load(&record->state) != OBJECT_LIVE)
        return;
    struct depot_stack *stack = depot_stack(record->allocated.stack);
    live->bytes += record->size;
    live->count++;
    if (!stack)
        return;
    stack->live_bytes += record->size;
    stack->live_count++;
}

static void add_object(struct kmem_cache *cache, struct debug_place place, void *with)
{
    (void)cache;
    add_record(with, place.record);
}

static void add_large(struct live *live)
{
    for (uint32_t slice = 0; slice < region_end(); slice++)
        if (read_once(slice_at(slice)->kind) == SLICE_LARGE)
            add_record(live, debug_of_slice(slice, false));
}

static void forget(struct depot_stack *stack, void *with)
{
    (void)with;
    stack->live_bytes = stack->live_count = 0;
}

static void count_stack(struct depot_stack *stack, void *with)
{
    struct live *live = with;
    live->stacks += stack->live_count != 0;
}

static void find_largest(struct depot_stack *stack, void *with)
{
    struct live *live = with;
    if (stack->live_count && (!live->largest || stack->live_bytes > live->largest->live_bytes))
        live->largest = stack;
}

static void write_amount(const char *before, uint64_t bytes, uint64_t count, const char *behind)
{
    struct message m = {.length = 0};
    message_text(&m, before);
    message_number(&m, bytes);
    message_text(&m, " bytes in ");
    message_number(&m, count);
    message_text(&m, count == 1 ? " object" : " objects");
    message_text(&m, behind);
    debug_write(&m);
}

/* Clears the sums of each reported stack, so that the next search finds the next largest. */
static void report_stacks(struct live *live)
{
    uint64_t bytes = live->bytes, count = live->count;
    depot_each(count_stack, live);
    for (unsigned i = 0; i < STACKS_TOLD; i++) {
        live->largest = NULL;
        depot_each(find_largest, live);
        if (!live->largest)
            break;
        write_amount("sheaf:   ", live->largest->live_bytes, live->largest->live_count, " allocated by:");
        debug_write_pcs(live->largest->pcs, live->largest->depth, "    ");
        bytes -= live->largest->live_bytes;
        count -= live->largest->live_count;
        forget(live->largest, NULL);
    }
    if (count && live->stacks)
        write_amount("sheaf:   and ", bytes, count,
                     live->stacks > STACKS_TOLD ? " allocated by other stacks" : " without a stack");
}

static void each_cache(void (*visit)(struct kmem_cache *cache, struct live *live), struct live *live)
{
    for (unsigned i = CACHE_FIRST; i < read_once(cache_top); i++)
        if (is_debugged(cache_at(i)))
            visit(cache_at(i), live);
}

static void add_cache(struct kmem_cache *cache, struct live *live)
{
    each_object(cache, add_object, live);
}

static void report_cache(struct kmem_cache *cache, struct live *all)
{
    (void)all;
    struct live live = {.bytes = 0};
    each_object(cache, add_object, &live);
    if (!live.count)
        return;
    struct message m = {.length = 0};
    message_text(&m, " in ");
    message_text(&m, cache->name);
    m.text[m.length] = 0;
    write_amount("sheaf:   ", live.bytes, live.count, m.text);
}

static void report_live(void)
{
    struct live live = {.bytes = 0};
    depot_each(forget, NULL);
    each_cache(add_cache, &live);
    add_large(&live);
    write_amount("sheaf: live at exit: ", live.bytes, live.count, "");
    report_stacks(&live);
    each_cache(report_cache, &live);
}

void debug_at_exit(void)
{
    unsigned problems = 0;
    if (!debug_on())
        return;
    for (unsigned i = CACHE_FIRST; sheaf_config.validate && i < read_once(cache_top); i++)
        if (is_debugged(cache_at(i)))
            each_object(cache_at(i), validate_one, &problems);
    if (sheaf_config.validate)
        problems += hooks.validate_large ? hooks.validate_large() : 0;
    if (sheaf_config.leaks == LEAKS_LIVE)
        report_live();
    if (problems && !sheaf_config.debug_go_on)
        abort();
}
