/* mallinfo, malloc_info and similar functions, from live counters. */
#define _GNU_SOURCE
#include "front/malloc/malloc.h"
#include "front/malloc/classes.h"
#include "front/malloc/large.h"
#include "cache/node/node.h"
#include "cache/slot/span_cache.h"
#include "platform/os/libc.h"
#include "platform/os/vm.h"
#include "preload/libc.h"
#include "preload/names.h"
#include "preload/status.h"
#include "process/census.h"
#include "process/decay.h"

#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

/* The next function of that name where Sheaf steps aside, otherwise NULL. */
#define ELSEWHERE(name, type) (likely(names_ours()) ? NULL : next_or(#name, type, NULL))

#ifdef __GLIBC__ /* musl has no such structs and options */

/*
 * arena: bytes of slabs. ordblks: 1 if slabs or sheaves hold free objects, which are not counted singly. hblks,
 * hblkhd: number and bytes of large blocks. fsmblks: bytes of objects in sheaves and barns. uordblks: bytes in
 * use. fordblks: bytes of slabs that are not in use. keepcost: bytes of free slices, which malloc_trim() could
 * return to the system.
 */
sheaf_export struct mallinfo2 mallinfo2(void)
{
    struct mallinfo2 (*next)(void) = ELSEWHERE(mallinfo2, struct mallinfo2(void));
    if (next)
        return next();
    struct malloc_totals t;
    malloc_totals(&t);
    size_t large = t.large_bytes + t.mapped_bytes;
    return (struct mallinfo2){
        .arena = t.slab_bytes,
        .ordblks = t.cached + t.free_in_slabs ? 1 : 0,
        .hblks = t.large_count,
        .hblkhd = large,
        .usmblks = 0,
        .fsmblks = t.cached,
        .uordblks = t.in_use + large,
        .fordblks = t.slab_bytes > t.in_use ? t.slab_bytes - t.in_use : 0,
        .keepcost = t.warm_bytes,
    };
}

static int clamp(size_t n)
{
    return n > INT_MAX ? INT_MAX : (int)n;
}

sheaf_export struct mallinfo mallinfo(void)
{
    struct mallinfo (*next)(void) = ELSEWHERE(mallinfo, struct mallinfo(void));
    if (next)
        return next();
    struct mallinfo2 m = mallinfo2();
    return (struct mallinfo){
        .arena = clamp(m.arena),
        .ordblks = clamp(m.ordblks),
        .hblks = clamp(m.hblks),
        .hblkhd = clamp(m.hblkhd),
        .fsmblks = clamp(m.fsmblks),
        .uordblks = clamp(m.uordblks),
        .fordblks = clamp(m.fordblks),
        .keepcost = clamp(m.keepcost),
    };
}

/* Parameters of glibc without a counterpart here are accepted (the result is 1) and change nothing. */
sheaf_export int mallopt(int parameter, int value)
{
    int (*next)(int, int) = ELSEWHERE(mallopt, int(int, int));
    if (next)
        return next(parameter, value);
    switch (parameter) {
    case M_TRIM_THRESHOLD:
        if (value >= 0) {
            sheaf_config.keep = (size_t)value;
            region_retain((size_t)value, true);
            span_cache_keep((size_t)value);
        }
        return 1;
    case M_MXFAST:
        return value >= 0 && value <= 160;
    case M_MMAP_THRESHOLD:
        if (value >= 0)
            large_threshold = (size_t)value;
        return 1;
    case M_TOP_PAD:
    case M_MMAP_MAX:
    case M_CHECK_ACTION:
    case M_PERTURB:
    case M_ARENA_TEST:
    case M_ARENA_MAX:
        return 1;
    default:
        return 0;
    }
}

#endif

/* The sum of a cache and its siblings on other memory nodes. */
struct row {
    struct cache_census census;
    uint64_t slabs, free_in_slabs;
};

static bool cache_row(unsigned number, struct row *row)
{
    const struct kmem_cache *cache = cache_at(number);
    *row = (struct row){.slabs = 0};
    if (!cache_in_use(cache) || cache->home != number)
        return false;
    for (unsigned k = 0; k < cache_siblings(cache); k++) {
        const struct kmem_cache *sibling = cache_sibling(cache, k);
        struct cache_census census;
        if (!cache_in_use(sibling))
            continue;
        cache_census(sibling, &census);
        census_add(&row->census, &census);
        row->slabs += sibling->slab.slabs;
        row->free_in_slabs += sibling->slab.free;
    }
    return row->census.out || row->slabs;
}

/* Prints how much memory is kept free, and where. */
static void print_kept(const struct malloc_totals *t)
{
    const struct {
        const char *name;
        size_t bytes;
    } kept[] = {
        {"free in sheaves", t->cached - t->in_barns + t->set_aside},
        {"free in barns", t->in_barns},
        {"free in slabs", t->free_in_slabs + t->slab_rest},
        {"free in span caches", t->span_cache_bytes},
        {"free in region", t->warm_bytes - t->span_cache_bytes},
        {"given back", t->purged_bytes},
        {"resident", status_bytes("VmRSS:")},
    };
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
        fprintf(stderr, "%-16s = %10zu\n", kept[i].name, kept[i].bytes);
}

/* Like glibc's, this writes with stdio and with cancellation disabled. */
sheaf_export void malloc_stats(void)
{
    void (*next)(void) = ELSEWHERE(malloc_stats, void(void));
    if (next) {
        next();
        return;
    }
    int state;
    struct malloc_totals t;
    malloc_totals(&t);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    fprintf(stderr, "%-16s %10s %12s %12s %12s %8s\n", "cache", "size", "in use", "in sheaves", "in barns", "slabs");
    for (unsigned i = CACHE_FIRST; i < cache_top; i++) {
        struct row row;
        if (cache_row(i, &row))
            fprintf(stderr, "%-16s %10u %12lu %12lu %12lu %8lu\n", cache_at(i)->name, cache_at(i)->slab.size,
                    (unsigned long)row.census.in_use, (unsigned long)row.census.in_sheaves,
                    (unsigned long)row.census.in_barns, (unsigned long)row.slabs);
    }
    fprintf(
        stderr,
        "system bytes     = %10zu\nin use bytes     = %10zu\nlarge bytes      = %10zu\nfree warm bytes  = %10zu\n",
        t.slab_bytes + t.large_bytes + t.mapped_bytes, t.in_use + t.large_bytes + t.mapped_bytes,
        t.large_bytes + t.mapped_bytes, t.warm_bytes);
    print_kept(&t);
    pthread_setcancelstate(state, NULL);
}

static void print_name(FILE *f, const char *name)
{
    for (; *name; name++)
        if (*name == '<' || *name == '&' || *name == '"' || (unsigned char)*name < 32)
            fprintf(f, "&#%d;", (unsigned char)*name < 32 ? '?' : *name);
        else
            fputc(*name, f);
}

sheaf_export int malloc_info(int options, FILE *f)
{
    int (*next)(int, FILE *) = ELSEWHERE(malloc_info, int(int, FILE *));
    if (next)
        return next(options, f);
    if (options) {
        errno = EINVAL;
        return -1;
    }
    struct malloc_totals t;
    malloc_totals(&t);
    fprintf(f, "<malloc version=\"1\" allocator=\"sheaf\">\n<heap nr=\"0\">\n<sizes>\n");
    for (unsigned i = CACHE_FIRST; i < cache_top; i++) {
        struct row row;
        if (!cache_row(i, &row))
            continue;
        fputs("<cache name=\"", f);
        print_name(f, cache_at(i)->name);
        fprintf(f,
                "\" size=\"%u\" in_use=\"%lu\" in_sheaves=\"%lu\" in_barns=\"%lu\" free_in_slabs=\"%lu\" "
                "slabs=\"%lu\"/>\n",
                cache_at(i)->slab.size, (unsigned long)row.census.in_use, (unsigned long)row.census.in_sheaves,
                (unsigned long)row.census.in_barns, (unsigned long)row.free_in_slabs, (unsigned long)row.slabs);
    }
    size_t large = t.large_bytes + t.mapped_bytes;
    fprintf(
        f,
        "</sizes>\n<total type=\"fast\" count=\"0\" size=\"%zu\"/>\n<total type=\"rest\" count=\"0\" size=\"%zu\"/>\n"
        "<total type=\"mmap\" count=\"%zu\" size=\"%zu\"/>\n<system type=\"current\" size=\"%zu\"/>\n"
        "<system type=\"max\" size=\"%zu\"/>\n<aspace type=\"total\" size=\"%zu\"/>\n"
        "<aspace type=\"mprotect\" size=\"%zu\"/>\n</heap>\n</malloc>\n",
        t.cached, t.free_in_slabs, t.large_count, large, t.slab_bytes + large, t.slab_bytes + large,
        t.slab_bytes + large, t.slab_bytes + large);
    return ferror(f) ? -1 : 0;
}
