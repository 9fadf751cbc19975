/* After the microbenchmark that came with the kernel's sheaves (linux-mm, 2025): batches, in order and shuffled. */
#include "columns.h"

#include <stdio.h>

static void once(struct kmem_cache *cache, void **objects, const unsigned *order, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        objects[i] = kmem_cache_alloc(cache, GFP_KERNEL);
        if (!objects[i])
            fail("no memory for %u objects; run with a smaller --batch", n);
        *(volatile uint64_t *)objects[i] = i;
    }
    for (unsigned i = 0; i < n; i++)
        kmem_cache_free(cache, objects[order[i]]);
}

static void fill_order(unsigned *order, unsigned n)
{
    uint64_t random = 88172645463325252u;
    for (unsigned i = 0; i < n; i++)
        order[i] = i;
    for (unsigned i = n; setup.shuffled && i > 1; i--) {
        unsigned k = (unsigned)(random_next(&random) % i), swap = order[i - 1];
        order[i - 1] = order[k];
        order[k] = swap;
    }
}

void run_batch(void)
{
    struct kmem_cache *cache = cache_under_test(setup.size);
    unsigned n = setup.batch;
    void **objects = scratch(n * sizeof(void *));
    unsigned *order = scratch(n * sizeof(unsigned));
    double least = 1e18;
    uint64_t times = setup.ops / n + 1;
    fill_order(order, n);
    for (unsigned r = 0; r <= setup.rounds; r++) { /* the first one warms up */
        uint64_t start = now_ns();
        for (uint64_t i = 0; i < times; i++)
            once(cache, objects, order, n);
        double ns = (double)(now_ns() - start) / (double)(times * n);
        least = r && ns < least ? ns : least;
    }
    printf("{\"test\": \"batch\", \"batch\": %u, \"shuffled\": %d, \"capacity\": %d, \"ns_per_op\": %.3f, "
           "\"fast_share\": %.5f}\n",
           n, setup.shuffled, setup.fixed ? (int)setup.capacity : -1, least, fast_share(cache));
}
