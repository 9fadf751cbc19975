#include "diagnostics/feature/debug.h"
#include "diagnostics/feature/debug_report.h"
#include "diagnostics/feature/depot.h"
#include "platform/os/syscall.h"
#include "platform/os/vm.h"
#include "platform/os/hooks.h"

#include <string.h>
#include <time.h>

/* ---- the table of records ---- */

/* The records lie in the shadow of the region (memory/space/space.h), which has SLICE_SIZE bytes for each slice. */

static noinline_cold bool refuse(void)
{
    static _Atomic bool told;
    struct message m = {.length = 0};
    message_text(&m,
                 "sheaf: no address space for the records of debugging: nothing is debugged; raise `ulimit -v` to "
                 "twice the size of the heap and more");
    if (!atomic_exchange(&told, true))
        message_write(&m);
    return false;
}

/* The region may grow while the shadow is being mapped, hence the loop. Afterwards both grow together. */
bool debug_start(void)
{
    static _Atomic bool started;
    if (debug_on())
        return true;
    uint32_t slices;
    do {
        slices = region_end();
        if (!space_grow(&space.shadow, (size_t)slices << SLICE_SHIFT))
            return refuse();
    } while (slices != region_end());
    if (!atomic_exchange(&started, true))
        debug_report_start();
    hooks.report = debug_report_misuse;
    return true;
}

bool debug_on(void)
{
    return atomic_load_explicit(&space.shadow.mapped, memory_order_acquire) != 0;
}

struct debug_object *debug_of_slice(uint32_t slice, bool writable)
{
    size_t offset = (size_t)slice << SLICE_SHIFT;
    if (offset >= atomic_load_explicit(&space.shadow.mapped, memory_order_acquire))
        return NULL;
    char *at = space.shadow.start + offset;
    return !writable || vm_commit(at, sizeof(struct debug_object)) ? (struct debug_object *)(void *)at : NULL;
}

/* The shadow must exist, as it does once a cache is debugged. */
static struct debug_object *record_at(uint32_t slice, uint32_t index)
{
    char *at = space.shadow.start + ((size_t)slice << SLICE_SHIFT);
    return (struct debug_object *)(void *)at + index;
}

struct debug_place debug_place(const struct kmem_cache *cache, const void *p)
{
    uint32_t slice, index;
    if (!slab_locate(&cache->slab, p, &slice, &index))
        return (struct debug_place){.record = NULL};
    return (struct debug_place){record_at(slice, index),
                                (char *)slice_address(slice) + (size_t)index * cache->slab.size};
}

/* ---- fill patterns and their checks ---- */

static bool poisoned(const struct kmem_cache *cache)
{
    /* constructed objects stay constructed while they are free, and RCU readers may still read typesafe ones */
    return cache->flags & SLAB_POISON && !cache->slab.ctor && !cache->slab.typesafe;
}

/* In the common case the first byte is right and each byte equals the next. The program may write to the memory
 * meanwhile, so the search may find no difference after all. */
bool debug_differs(const char *at, size_t length, int byte, size_t *first, size_t *end)
{
    size_t i = 0, j = length;
    if (likely(!length || ((unsigned char)at[0] == byte && !memcmp(at, at + 1, length - 1))))
        return false;
    while (i < length && (unsigned char)at[i] == byte)
        i++;
    while (j > i && (unsigned char)at[j - 1] == byte)
        j--;
    *first = i;
    *end = j;
    return i < j;
}

static void paint_free(const struct kmem_cache *cache, char *raw)
{
    char *object = raw + cache->slab.lead, *end = object + cache->object_size;
    if (cache->flags & SLAB_RED_ZONE) {
        memset(raw, BYTE_ZONE_FREE, cache->slab.lead);
        memset(end, BYTE_ZONE_FREE, cache->slab.size - (size_t)(end - raw));
    }
    if (poisoned(cache)) {
        memset(object, BYTE_FREED, cache->object_size - 1);
        end[-1] = (char)BYTE_FREED_END;
    }
}

static void paint_live(const struct kmem_cache *cache, const struct debug_object *record, char *raw)
{
    char *object = raw + record->offset;
    if (cache->flags & SLAB_RED_ZONE) {
        memset(raw, BYTE_ZONE, record->offset);
        memset(object + record->size, BYTE_ZONE, cache->slab.size - record->offset - record->size);
    }
    if (poisoned(cache))
        memset(object, BYTE_FRESH, record->size);
}

static bool damaged(struct damage *damage, const char *at, size_t length, int byte)
{
    *damage = (struct damage){.at = at, .length = length, .byte = byte};
    return debug_differs(at, length, byte, &damage->first, &damage->end);
}

/* Returns what is wrong with an object in use, with *damage set; NULL if nothing is. */
static const char *check_live(const struct kmem_cache *cache, const struct debug_object *record, const char *raw,
                              struct damage *damage)
{
    const char *end = raw + record->offset + record->size;
    /* of a neighbour, this may be the offset of one allocation and the size of the next: debug_check() notices */
    if (!(cache->flags & SLAB_RED_ZONE) || end > raw + cache->slab.size)
        return NULL;
    if (damaged(damage, end, cache->slab.size - (size_t)(end - raw), BYTE_ZONE))
        return "overflow: bytes were written past the end of";
    if (damaged(damage, raw, record->offset, BYTE_ZONE))
        return "underflow: bytes were written before the start of";
    return NULL;
}

/* The same for a free object. */
static const char *check_free(const struct kmem_cache *cache, const char *raw, struct damage *damage)
{
    const char *object = raw + cache->slab.lead, *end = object + cache->object_size;
    if (poisoned(cache) &&
        (damaged(damage, object, cache->object_size - 1, BYTE_FREED) || damaged(damage, end - 1, 1, BYTE_FREED_END)))
        return "write after free into";
    if (cache->flags & SLAB_RED_ZONE &&
        (damaged(damage, raw, cache->slab.lead, BYTE_ZONE_FREE) ||
         damaged(damage, end, cache->slab.size - (size_t)(end - raw), BYTE_ZONE_FREE)))
        return "write into the red zone of the free object";
    return NULL;
}

static struct debug_report report_on(const struct kmem_cache *cache, const char *kind,
                                     const struct debug_object *record, char *raw, const struct damage *damage)
{
    char *object = raw + (record->offset ? record->offset : cache->slab.lead);
    return (struct debug_report){
        .kind = kind, .pointer = object, .cache = cache->name, .record = record, .object = object, .damage = damage};
}

static void report(const struct kmem_cache *cache, const char *kind, const struct debug_object *record, char *raw,
                   const struct damage *damage, const char *done)
{
    struct debug_report report = report_on(cache, kind, record, raw, damage);
    report.done = done;
    debug_report(&report);
}

/* ---- tracks ---- */

static _Atomic uint64_t calls;

uint64_t debug_next_call(void)
{
    return atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed) + 1;
}

void debug_track(struct track *track, slab_flags_t flags)
{
    struct timespec now;
    if (!(flags & SLAB_STORE_USER))
        return;
    clock_gettime(CLOCK_MONOTONIC, &now);
    track->time = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    track->thread = (uint32_t)sys_call3(SYS_gettid, 0, 0, 0);
    track->stack = depot_here();
}

static noinline_cold void trace(const struct kmem_cache *cache, const char *what, const void *object,
                                const struct debug_object *record)
{
    struct message m = {.length = 0};
    message_text(&m, "sheaf: trace ");
    message_text(&m, cache->name);
    message_text(&m, what);
    message_pointer(&m, object);
    message_text(&m, " of ");
    message_number(&m, record->size);
    message_text(&m, " bytes, allocation ");
    message_number(&m, record->call);
    message_text(&m, ", thread ");
    message_number(&m, (uint64_t)sys_call3(SYS_gettid, 0, 0, 0));
    debug_write(&m);
}

/* ---- creation and release of slabs ---- */

static struct kmem_cache *cache_of(struct slab_cache *slab)
{
    return (struct kmem_cache *)(void *)((char *)slab - offsetof(struct kmem_cache, slab));
}

static bool slab_created(struct slab_cache *slab, uint32_t slice)
{
    struct kmem_cache *cache = cache_of(slab);
    if (!vm_commit(record_at(slice, 0), slab->objects * sizeof(struct debug_object)))
        return false;
    for (uint32_t i = 0; i < slab->objects; i++) {
        struct debug_object *record = record_at(slice, i);
        uint32_t version = atomic_load_explicit(&record->version, memory_order_relaxed);
        *record = (struct debug_object){.version = version + 2};
        paint_free(cache, (char *)slice_address(slice) + (size_t)i * slab->size);
        atomic_store_explicit(&record->state, OBJECT_FREE, memory_order_release);
    }
    return true;
}

static void slab_released(struct slab_cache *slab, uint32_t slice)
{
    struct kmem_cache *cache = cache_of(slab);
    for (uint32_t i = 0; i < slab->objects; i++) {
        struct debug_object *record = record_at(slice, i);
        char *raw = (char *)slice_address(slice) + (size_t)i * slab->size;
        struct damage damage;
        const char *kind = check_free(cache, raw, &damage);
        if (kind)
            report(cache, kind, record, raw, &damage, "not repaired: its slab is returned to the region");
        atomic_store_explicit(&record->state, OBJECT_NONE, memory_order_relaxed);
        atomic_fetch_add(&record->version, 2);
    }
    /* the slab's records share no page with other records */
    vm_uncommit(record_at(slice, 0), round_up(slab->objects * sizeof(struct debug_object), space.page_size));
}

uint32_t debug_layout(struct kmem_cache *cache, uint32_t object_size, uint32_t align)
{
    uint32_t zone = cache->flags & SLAB_RED_ZONE ? DEBUG_ZONE : 0;
    uint32_t lead = zone ? (uint32_t)round_up(zone, align) : 0;
    uint32_t size = (uint32_t)round_up(lead + object_size + zone, align);
    uint32_t least = (uint32_t)round_up(sizeof(struct debug_object), align); /* or the records have no room */
    hooks.slab_created = slab_created;
    hooks.slab_released = slab_released;
    cache->slab.lead = (uint16_t)lead;
    cache->slab.watched = true;
    return size > least ? size : least;
}

/* ---- allocation and free ---- */

void *debug_present(struct kmem_cache *cache, void *raw, size_t size, size_t align)
{
    struct debug_object *record = debug_place(cache, raw).record;
    struct damage damage;
    if (!record)
        __builtin_unreachable(); /* every object of a slab has a record */
    const char *kind = check_free(cache, raw, &damage);
    if (unlikely(kind != NULL))
        report(cache, kind, record, raw, &damage, "repaired: the object was refilled before its allocation");
    atomic_store_explicit(&record->state, OBJECT_BUSY, memory_order_relaxed);
    atomic_fetch_add(&record->version, 1);
    record->offset = (uint32_t)(round_up((uintptr_t)raw + cache->slab.lead, align) - (uintptr_t)raw);
    record->size = size;
    record->call = debug_next_call();
    sheaf_assert(record->offset + size <= cache->slab.size);
    paint_live(cache, record, raw);
    record->freed = (struct track){.time = 0};
    debug_track(&record->allocated, cache->flags);
    atomic_store_explicit(&record->state, OBJECT_LIVE, memory_order_release);
    atomic_fetch_add(&record->version, 1);
    if (unlikely(cache->flags & SLAB_TRACE))
        trace(cache, " alloc ", (char *)raw + record->offset, record);
    return (char *)raw + record->offset;
}

/* Report a pointer that is not the start of a live object: as `twice` if an object starts there, else as
 * `inside`. */
static noinline_cold void refuse_pointer(const struct kmem_cache *cache, const struct debug_place *place,
                                         const void *p, const char *inside, const char *twice)
{
    struct debug_report report = {.kind = inside, .pointer = p, .cache = cache->name, .done = "ignored"};
    if (place->record) {
        report.record = place->record;
        report.object = place->raw + (place->record->offset ? place->record->offset : cache->slab.lead);
        if (p == report.object)
            report.kind = twice;
    }
    debug_report(&report);
}

bool debug_check(const struct kmem_cache *cache, struct debug_place place, struct debug_report *report,
                 struct damage *damage)
{
    const char *kind = NULL;
    uint32_t version = atomic_load(&place.record->version);
    uint32_t state = atomic_load(&place.record->state);
    if (version & 1)
        return false;
    if (state == OBJECT_LIVE)
        kind = check_live(cache, place.record, place.raw, damage);
    else if (state == OBJECT_FREE)
        kind = check_free(cache, place.raw, damage);
    atomic_thread_fence(memory_order_seq_cst);
    if (likely(!kind) || atomic_load(&place.record->version) != version)
        return false;
    *report = report_on(cache, kind, place.record, place.raw, damage);
    return true;
}

static void check_neighbour(const struct kmem_cache *cache, uint32_t slice, uint32_t index)
{
    struct debug_report report;
    struct damage damage;
    char *raw = (char *)slice_address(slice) + (size_t)index * cache->slab.size;
    if (likely(!debug_check(cache, (struct debug_place){record_at(slice, index), raw}, &report, &damage)))
        return;
    report.done = "not repaired: found when a neighbouring object was freed";
    debug_report(&report);
}

/* SLAB_CONSISTENCY_CHECKS: check the objects on both sides. */
static void check_neighbours(const struct kmem_cache *cache, const char *raw)
{
    uint32_t slice, index;
    if (!slab_locate(&cache->slab, raw, &slice, &index))
        return;
    if (index)
        check_neighbour(cache, slice, index - 1);
    if (index + 1 < cache->slab.objects)
        check_neighbour(cache, slice, index + 1);
}

void *debug_free(struct kmem_cache *cache, void *object)
{
    struct debug_place place = debug_place(cache, object);
    struct debug_object *record = place.record;
    uint32_t live = OBJECT_LIVE;
    if (unlikely(!record || (char *)object != place.raw + record->offset ||
                 !atomic_compare_exchange_strong(&record->state, &live, OBJECT_BUSY))) {
        refuse_pointer(cache, &place, object, "free of interior pointer", "double free of");
        return NULL;
    }
    struct damage damage;
    const char *kind = check_live(cache, record, place.raw, &damage);
    if (unlikely(kind != NULL))
        report(cache, kind, record, place.raw, &damage,
               "repaired: the red zones were rewritten, and the object was freed");
    if (cache->flags & SLAB_CONSISTENCY_CHECKS)
        check_neighbours(cache, place.raw);
    if (unlikely(cache->flags & SLAB_TRACE))
        trace(cache, " free ", object, record);
    atomic_fetch_add(&record->version, 1);
    debug_track(&record->freed, cache->flags);
    paint_free(cache, place.raw);
    atomic_store_explicit(&record->state, OBJECT_FREE, memory_order_release);
    atomic_fetch_add(&record->version, 1);
    return place.raw;
}

size_t debug_size(const struct kmem_cache *cache, const void *p)
{
    struct debug_place place = debug_place(cache, p);
    bool live = place.record && (const char *)p == place.raw + place.record->offset &&
                atomic_load_explicit(&place.record->state, memory_order_acquire) == OBJECT_LIVE;
    if (likely(live))
        return place.record->size;
    refuse_pointer(cache, &place, p, "use of interior pointer", "use after free of");
    return 0;
}
