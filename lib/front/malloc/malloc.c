#include "front/malloc/malloc.h"
#include "front/malloc/fast.h"
#include "cache/alloc.h"
#include "cache/free.h"
#include "diagnostics/feature/instrument.h"
#include "cache/ends.h"
#include "diagnostics/feature/fail.h"
#include "process/census.h"
#include "process/decay.h"
#include "process/helper.h"
#include "process/start.h"
#include "diagnostics/profile/profile.h"
#include "cache/misuse.h"
#include "diagnostics/feature/guarded_pool.h"
#include "front/malloc/classes.h"
#include "front/malloc/large.h"
#include "front/malloc/large_debug.h"
#include "front/malloc/strata.h"
#include "platform/os/vm.h"
#include "memory/space/mapped.h"

#include <errno.h>
#include <string.h>

/*
 * A signal handler that interrupted the holder of this class's lock gets an object of a larger class, of which
 * this many are tried; free() finds the class by the address.
 */
#define LARGER_CLASSES 4
#define PROMISE_FROM   (1ul << 30) /* bytes: smaller requests are not compared with what the machine has */

/* ---- start ---- */

static early_data bool started; /* the fast paths' limits do not show it without libc's rseq */

static __attribute__((noinline)) bool start(void)
{
    hooks.count_strata = malloc_count_strata;
    if (!cache_layer_init()) /* kmem_cache_create() may have called it before */
        return false;
    if (sheaf_config.debug != NULL)
        large_debug_start();
    classes_start();
    if (slot_mode == SHEAF_MODE_RSEQ_MM_CID || slot_mode == SHEAF_MODE_RSEQ_CPU_ID)
        fast_enable();
    __atomic_store_n(&started, true, __ATOMIC_RELEASE);
    return true;
}

bool malloc_init(void)
{
    return likely(__atomic_load_n(&started, __ATOMIC_ACQUIRE)) || start();
}

/* ---- allocation ---- */

/* Whether malloc() and free() already tried an rseq section. */
static bool fast_paths(void)
{
    return slot_mode == SHEAF_MODE_RSEQ_MM_CID || slot_mode == SHEAF_MODE_RSEQ_CPU_ID;
}

/* Allocates an object of the class for a request of n bytes. */
static void *class_alloc(unsigned number, size_t n, size_t align)
{
    if (!fast_paths()) {
        void *object = slot_pop_local(word_id(number), class_size(number) > TWO_ENDS_MOST);
        if (object)
            return object;
    }
    struct kmem_cache *cache = class_cache(number);
    if (unlikely(cache->ops != NULL)) {
        __typeof__(cache->ops->alloc) alloc_object = cache_op(cache, alloc);
        __typeof__(cache->ops->sample) sample = cache_op(cache, sample);
        void *object = alloc_object ? alloc_object(cache, n, align) : sample ? sample(cache, n, align) : NULL;
        if (alloc_object || object)
            return object;
    }
    return cache_alloc_slow(cache);
}

/* A block outside the region, wherever the system has memory, unless the user limits the size of the heap. */
static void *small_mapped(unsigned number)
{
    size_t size = class_size(number);
    void *p = sheaf_config.region ? NULL : mapped_small(number, size);
    return p && sheaf_config.harden.zero_alloc ? memset(p, 0, size) : p;
}

/*
 * Returns unused memory to the system and tries again. Staged memory is first tried without that, because the system
 * may refuse to commit again what was returned. If all of it fails, a block outside the region serves the request, or
 * a span of slices, because the caller may be a signal handler for which all locks are out of reach.
 */
static noinline_cold void *alloc_after_trim(unsigned number, size_t n, size_t align)
{
    void *p = region_crowded() ? small_mapped(number) : NULL;
    if (!p && vm_staged) {
        cache_drain_all();
        p = class_alloc(number, n, align);
    }
    if (!p && cache_trim_all())
        p = class_alloc(number, n, align);
    if (!p)
        p = small_mapped(number);
    if (!p)
        p = large_alloc(n, align, false);
    if (!p)
        __atomic_fetch_add(&cache_at(number)->alloc_fail, 1, __ATOMIC_RELAXED);
    return p;
}

static noinline_cold void *alloc_larger_class(unsigned number, size_t n)
{
    void *mapped = region_crowded() ? small_mapped(number) : NULL;
    if (mapped)
        return mapped;
    for (unsigned i = 1; i <= LARGER_CLASSES && number + i < CLASS_FIRST + CLASSES; i++) {
        void *object = class_alloc(number + i, n, 1);
        if (object)
            return object;
    }
    return alloc_after_trim(number, n, 1);
}

static void *no_memory(void)
{
    errno = ENOMEM;
    return NULL;
}

/* The class may have to be set up first. */
static __attribute__((noinline)) bool served_by_ops(unsigned number, size_t n, size_t align, void **p)
{
    struct kmem_cache *cache = class_cache(number);
    __typeof__(cache->ops->serve) serve = cache_op(cache, serve);
    return serve && serve(cache, n, align, p);
}

/* Fault injection and sampling. Returns true if *p is final; NULL is a failure. */
static always_inline bool served(unsigned number, size_t n, size_t align, void **p)
{
    bool plain = __atomic_load_n(&class_ready[number], __ATOMIC_ACQUIRE) && !read_once(cache_at(number)->ops);
    return unlikely(!plain) && served_by_ops(number, n, align, p);
}

static bool large_fails(size_t n)
{
    return unlikely(fail_large) && fail_now(FAIL_LARGE, n);
}

/*
 * Whether the system's policy lets the process have n more bytes. Programs rely on a refusal of what the machine does
 * not have (a length from a damaged file): they would otherwise write to it until the system kills them. A block that
 * grows is judged by what is added, as the kernel judges mremap().
 */
static bool promised(size_t n)
{
    return likely(n < PROMISE_FROM) || vm_promises(n);
}

/*
 * For which function an allocation is. ANY: malloc(). ZEROED: calloc(), which clears small blocks itself. OWN: for
 * callers that must not get another malloc's memory.
 */
enum caller { ANY, ZEROED, OWN };

/* Memory where Sheaf has not started: from the malloc that serves in its place, if there is one. */
static noinline_cold void *alloc_elsewhere(size_t n, enum caller caller)
{
    const struct other_malloc *other = caller == OWN ? NULL : sheaf_steps_aside();
    if (!other)
        return no_memory();
    return caller == ZEROED ? other->calloc(1, n) : other->malloc(n);
}

static void *alloc_request(size_t n, enum caller caller)
{
    if (unlikely(!malloc_init()))
        return alloc_elsewhere(n, caller);
    void *p;
    if (likely(n <= CLASS_MOST)) {
        unsigned number = class_number(n);
        if (served(number, n, 1, &p))
            return p ? p : no_memory();
        p = class_alloc(number, n, 1);
        if (unlikely(!p))
            p = alloc_larger_class(number, n);
    } else {
        p = large_fails(n) || !promised(n) ? NULL : large_alloc(n, 1, caller == ZEROED);
    }
    return likely(p != NULL) ? p : no_memory();
}

static __attribute__((noinline)) void *malloc_ends_empty(size_t n)
{
    if (unlikely(atomic_load_explicit(&helper_wanted, memory_order_relaxed)))
        helper_start(__builtin_return_address(0));
    return alloc_request(n, ANY);
}

static __attribute__((noinline)) void *ends_empty_for(size_t n, enum caller caller)
{
    if (unlikely(atomic_load_explicit(&helper_wanted, memory_order_relaxed)))
        helper_start(__builtin_return_address(0));
    return alloc_request(n, caller);
}

/* The requests that malloc_try() does not serve: large classes, and all classes where the slot is not mm_cid. */
static always_inline void *pop_large_or_by_cpu(size_t n)
{
    if (n < fast_head(rseq_roots.cpu_base)->limit)
        return rseq_pop_local(rseq_roots.cpu_base, class_small_word(rseq_roots.cpu_base, n));
    if (likely(n - SMALL_MOST - 1 < CLASS_MOST - SMALL_MOST)) {
        if (likely(fast_head(rseq_roots.cid_base)->limit))
            return rseq_pop_lifo_cid(rseq_roots.cid_base, class_large_word(rseq_roots.cid_base, n));
        if (likely(fast_head(rseq_roots.cpu_base)->limit))
            return rseq_pop_lifo_local(rseq_roots.cpu_base, class_large_word(rseq_roots.cpu_base, n));
    }
    return NULL;
}

/* For slots by mm_cid whose pop end was empty; the push end usually is not. */
static always_inline void *pop_exchanged(size_t n)
{
    uintptr_t base = rseq_roots.cid_base;
    unsigned slot = rseq_slot(&fast_head(base)->area);
    bool swapped = ends_swap(slot, class_small_word(base, n));
    return likely(swapped) ? rseq_pop_class(base, n) : NULL;
}

static __attribute__((noinline)) void *malloc_end_empty(size_t n)
{
    void *object = pop_exchanged(n);
    return likely(object != NULL) ? object : malloc_ends_empty(n);
}

/* Needs no stack frame; everything else is out of line: docs/cold-path.md, "The call tree of malloc". */
__attribute__((noinline)) void *malloc_missed(size_t n)
{
    if (n < fast_head(rseq_roots.cid_base)->limit)
        return malloc_end_empty(n);
    void *object = pop_large_or_by_cpu(n);
    return likely(object != NULL) ? object : malloc_ends_empty(n);
}

void *malloc_try_others(size_t n)
{
    return n < fast_head(rseq_roots.cid_base)->limit ? pop_exchanged(n) : pop_large_or_by_cpu(n);
}

void *malloc_own(size_t n)
{
    void *object = malloc_try_others(n);
    return likely(object != NULL) ? object : ends_empty_for(n, OWN);
}

void *malloc_zeroed(size_t n)
{
    if (unlikely(n > CLASS_MOST))
        return alloc_request(n, ZEROED); /* large memory is often zero already */
    void *p = malloc_try_others(n);
    if (unlikely(!p))
        p = ends_empty_for(n, ZEROED);
    return likely(p != NULL) ? memset(p, 0, n) : NULL;
}

static bool class_is_debugged(size_t n)
{
    return class_cache(class_number(n))->instruments & INSTRUMENT_DEBUG;
}

/*
 * Objects of debugged classes are aligned to 16 at most. A request for more takes a class with room for both the
 * size and the distance to the next multiple, or, if that class is not debugged, a larger class that is not
 * debugged.
 */
static size_t debugged_size(size_t align, size_t n, size_t want)
{
    if (align <= 16 || want > CLASS_MOST || !class_is_debugged(want))
        return want;
    size_t room = n + align - 16;
    if (room <= CLASS_MOST && class_is_debugged(room))
        return room;
    while (want <= CLASS_MOST && class_is_debugged(want))
        want += align;
    return want;
}

static __attribute__((noinline)) void *aligned_missed(size_t align, size_t n)
{
    if (unlikely(!malloc_init()))
        return sheaf_steps_aside() ? NULL : no_memory();
    size_t want = size_for_aligned(align, n + !n);
    if (unlikely(sheaf_config.debug != NULL)) /* caches that are debugged may not have been set up yet */
        want = debugged_size(align, n, want);
    void *p = NULL;
    if (want <= CLASS_MOST) {
        unsigned number = class_number(want);
        sheaf_assert(sheaf_config.debug || !(class_size(number) & (align - 1)));
        if (served(number, n, align, &p))
            return p ? p : no_memory();
        p = class_alloc(number, n, align);
        if (unlikely(!p))
            p = alloc_after_trim(number, n, align);
    } else {
        p = large_fails(n) || !promised(n) ? NULL : large_alloc(n, align, false);
    }
    return p ? p : no_memory();
}

void *malloc_aligned(size_t align, size_t n)
{
    void *object = malloc_try_others(size_for_aligned(align, n));
    return likely(object != NULL) ? object : aligned_missed(align, n);
}

/* ---- free ---- */

/* Whether an address below space.slice_count without an object is of the region: see in_region(). */
static bool of_region(const void *p)
{
    return likely(read_once(slice_at(slice_of(p))->kind) != SLICE_INSIDE) || (!mapped_size(p) && !pool_has(p));
}

static noinline_cold void free_foreign(void *p)
{
    if (pool_has(p)) {
        pool_free(p);
        return;
    }
    if (unlikely(atomic_load_explicit(&profile_mapped, memory_order_relaxed)))
        profile_mapped_freed(p);
    if (cache_layer_ready && mapped_free(p)) {
        cache_publish(NULL);
        return;
    }
    const struct other_malloc *owner = sheaf_owner_of_foreign();
    if (owner) {
        owner->free(p);
        return;
    }
    misuse_warn("free of foreign pointer", p, "not from this allocator");
}

/* Reached by tail calls only, so that the return address is that of free()'s caller. */
static __attribute__((noinline)) void free_push_refused(void *p)
{
    if (!p)
        return;
    if (unlikely(atomic_load_explicit(&helper_wanted, memory_order_relaxed)))
        helper_start(__builtin_return_address(0));
    uintptr_t slice = slice_of(p);
    if (unlikely(!cache_layer_ready || slice >= space.slice_count)) {
        free_foreign(p);
        return;
    }
    struct push_id id = slice_push_id(slice);
    if (!id.at) {
        if (likely(of_region(p)))
            large_free(p);
        else
            free_foreign(p);
        return;
    }
    if (!fast_paths() && slot_push(id, p))
        return;
    cache_free_slow(cache_at(push_id_number(id)), p);
}

/* Frees what free_fast() left; needs no stack frame where the slot is cpu_id. What it calls: docs/cold-path.md, "The
 * call tree of free". */
__attribute__((noinline)) void free_missed(void *p)
{
    uintptr_t base = rseq_roots.cpu_base;
    intptr_t at = (intptr_t)(base - 1 - (uintptr_t)p) >> SLICE_SHIFT;
    if ((uintptr_t)at > fast_head(base)->lowest &&
        likely(rseq_push(base, (struct push_id){((const uint16_t *)base)[at]}, p)))
        return;
    free_push_refused(p);
}

/* ---- size ---- */

size_t malloc_size(const void *p, const char *call)
{
    uintptr_t slice = slice_of(p);
    size_t size = 0;
    if (likely(cache_layer_ready && slice < space.slice_count)) {
        struct push_id id = slice_push_id(slice);
        if (id.at) {
            const struct kmem_cache *cache = cache_at(push_id_number(id));
            __typeof__(cache->ops->usable) usable = cache_op(cache, usable);
            return unlikely(usable != NULL) ? usable(cache, p) : slab_room(&cache->slab, p);
        }
        size = large_size(p);
        if (unlikely(!size) && of_region(p))
            large_report(call, p);
    }
    if (unlikely(!size) && cache_layer_ready)
        size = pool_has(p) ? pool_size(p) : mapped_size(p);
    if (!size && sheaf_owner_of_foreign())
        return SIZE_OF_ANOTHER;
    if (!size) {
        char text[64];
        strcpy(text, call);
        strcat(text, " foreign pointer");
        misuse_report(text, p, "not from this allocator");
    }
    return size;
}

static void *move(void *p, size_t old, size_t n)
{
    void *to = malloc_fast(n);
    if (!to)
        return NULL;
    memcpy(to, p, old < n ? old : n);
    free_fast(p);
    return to;
}

static void *resize_mapped(void *p, size_t old, size_t n)
{
    if (unlikely(old == SIZE_OF_ANOTHER))
        return sheaf_owner_of_foreign()->realloc(p, n);
    if (n <= old && n > old / 2)
        return p;
    if (n > old && !promised(n - old))
        return no_memory();
    void *to = n > CLASS_MOST && likely(!fail_large) ? mapped_resize(p, n) : NULL;
    if (!to)
        return move(p, old, n);
    if (unlikely(atomic_load_explicit(&profile_mapped, memory_order_relaxed)))
        profile_mapped_freed(p);
    if (unlikely(read_once(profile_on)))
        profile_large(to, n);
    return to;
}

void *malloc_resize(void *p, size_t n)
{
    size_t old = malloc_size(p, "realloc of");
    uintptr_t slice = slice_of(p);
    if (slice < space.slice_count && *slice_id(slice)) {
        /*
         * Within its class, and down to half its size, the block stays. Debugged objects always move, so that
         * stale pointers are caught.
         */
        const struct kmem_cache *cache = cache_at(push_id_number((struct push_id){*slice_id(slice)}));
        bool moves = unlikely(cache->instruments & INSTRUMENT_DEBUG);
        if (!moves && n <= old && n > old / 2)
            return p;
        return !moves && n <= old && class_number(n) == cache->home ? p : move(p, old, n);
    }
    if (unlikely(slice >= space.slice_count || !of_region(p)))
        return resize_mapped(p, old, n);
    if (n <= CLASS_MOST)
        return move(p, old, n);
    void *to = n > old && (large_fails(n) || !promised(n - old)) ? NULL : large_resize(p, n);
    return to ? to : no_memory();
}

/* realloc where Sheaf may not have started. Otherwise p is NULL, and memory was refused. */
static noinline_cold void *resize_elsewhere(void *p, size_t n)
{
    const struct other_malloc *other = sheaf_steps_aside();
    if (other)
        return other->realloc(p, n);
    if (p)
        free_fast(p);
    return NULL;
}

void *malloc_or_free(void *p, size_t n)
{
    if (p && likely(cache_layer_ready)) {
        free_fast(p);
        return NULL;
    }
    void *object = NULL;
    if (!p) {
        object = malloc_try(n);
        if (unlikely(!object))
            object = malloc_own(n);
    }
    return likely(object != NULL) ? object : resize_elsewhere(p, n);
}

/* ---- totals ---- */

apart void malloc_totals(struct malloc_totals *totals)
{
    *totals = (struct malloc_totals){0};
    if (!cache_layer_ready)
        return;
    for (unsigned i = CACHE_FIRST; i < read_once(cache_top); i++) {
        const struct kmem_cache *cache = cache_at(i);
        if (!cache_in_use(cache))
            continue;
        struct cache_census census;
        cache_census(cache, &census);
        totals->in_use += census.in_use * cache->slab.size;
        totals->in_use_count += census.in_use;
        uint64_t cached = census.in_sheaves + census.in_barns;
        totals->cached += cached * cache->slab.size;
        totals->in_barns += census.in_barns * cache->slab.size;
        totals->set_aside += (census_kept(&census) - cached) * cache->slab.size;
        totals->free_in_slabs += read_once(cache->slab.free) * cache->slab.size;
        totals->slab_rest += read_once(cache->slab.slabs) * (((size_t)cache->slab.slices << SLICE_SHIFT) -
                                                             (size_t)cache->slab.objects * cache->slab.size);
    }
    totals->slab_bytes = read_once(region_stats.slab_slices) << SLICE_SHIFT;
    struct large_totals large = large_totals();
    totals->large_bytes = large.bytes;
    totals->large_count = large.blocks;
    totals->warm_bytes = large.warm_bytes;
    totals->span_cache_bytes = large.span_cache_bytes;
    totals->purged_bytes = read_once(region_stats.purged_slices) << SLICE_SHIFT;
    totals->mapped_bytes = mapped_bytes() + pool_live_bytes();
}
