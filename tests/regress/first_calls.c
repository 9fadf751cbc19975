/* The order of the first calls does not matter; a new class takes one page fault. Includes internal headers. */
#include "../cases.h"
#include "front/malloc/fast.h"
#include "sheaf/kmem_cache.h"
#include "sheaf/malloc.h"

#include <sys/resource.h>

/* malloc's fast paths are enabled. Without this check a start that leaves them off would only be slow. */
static void expect_fast(void)
{
    void *p = sheaf_malloc(64);
    must(p);
    if (slot_mode != SHEAF_MODE_RSEQ_MM_CID && slot_mode != SHEAF_MODE_RSEQ_CPU_ID)
        _exit(CASE_SKIPPED);
    must((fast_head(rseq_roots.cid_base)->limit | fast_head(rseq_roots.cpu_base)->limit) > 64);
    sheaf_free(p);
}

CASE(malloc_before_kmem_cache_create)
{
    expect_fast();
    must(kmem_cache_create("second", 64, NULL, 0));
}

CASE(kmem_cache_create_before_malloc)
{
    must(kmem_cache_create("first", 64, NULL, 0));
    expect_fast();
}

static long faults(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return used.ru_minflt;
}

/*
 * Setting up a class must write to its cache's page before it reads there: a page that is read first is mapped to
 * the zero page and faults again when it is written. Only classes whose cache is the first in an untouched page
 * are measured, and not the first such class, which also touches memory that all classes share.
 */
CASE(a_new_class_takes_one_page_fault)
{
    const size_t page = 4096;
    unsigned tried = 0;
    if (sysconf(_SC_PAGESIZE) != (long)page)
        _exit(CASE_SKIPPED);
    must(sheaf_malloc(64));
    for (unsigned number = CLASS_FIRST + 9; number + 1 < CLASS_FIRST + CLASSES; number++) {
        uintptr_t cache = (uintptr_t)cache_at(number);
        if (cache / page == (cache - sizeof(struct kmem_cache)) / page ||
            cache / page != (cache + sizeof(struct kmem_cache) - 1) / page)
            continue; /* not the first cache in its page, or it extends into the next page */
        long before = faults();
        must(cache_in_use(class_cache(number)));
        long took = faults() - before;
        if (tried++)
            must(took <= 1);
    }
    must(tried > CLASSES / 32); /* the fewer classes, the fewer pages */
}
