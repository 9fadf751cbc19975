/* The order of the first calls does not matter. It sees the internal headers. */
#include "../cases.h"
#include "malloc/fast.h"
#include "sheaf/kmem_cache.h"
#include "sheaf/malloc.h"

/* malloc's fast paths are on; one that does without them works all the same, ten times slower. */
static void expect_fast(void)
{
    void *p = sheaf_malloc(64);
    must(p);
    if (slot_mode != SHEAF_MODE_RSEQ_MM_CID && slot_mode != SHEAF_MODE_RSEQ_CPU_ID)
        _exit(CASE_SKIPPED);
    must((fast_head(rseq_roots.cid_base)->limit | fast_head(rseq_roots.cpu_base)->limit) > 64);
    sheaf_free(p);
}

static void malloc_first(void)
{
    expect_fast();
    must(kmem_cache_create("second", 64, NULL, 0));
}

static void create_first(void)
{
    must(kmem_cache_create("first", 64, NULL, 0));
    expect_fast();
}

static const struct test_case cases[] = {
    {"malloc-before-kmem_cache_create", malloc_first},
    {"kmem_cache_create-before-malloc", create_first},
};

int main(int argc, char **argv)
{
    return run_cases(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
