/*
 * What the strata of a profile hold, and that weights follow the pace of sampling, with the bound on its cost that
 * users have.
 */
#define _GNU_SOURCE
#include "area.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>

enum { LARGE = 8000000 };

static void use(void *p)
{
    __asm__ volatile("" ::"r"(p) : "memory");
}

/* The process counts its strata when a sample is freed, at the latest 64 milliseconds after the last time. */
static void let_count(void)
{
    void *p = malloc(LARGE);
    use(p);
    usleep(100000);
    free(p);
}

static const struct sheaf_profile_stratum *stratum_of_size(const struct sheaf_profile *area, size_t size)
{
    unsigned i = 0;
    while (profile_stratum(area, i)->size < size)
        must(++i < area->strata - 2);
    return profile_stratum(area, i);
}

/* ---- counts ---- */

static void *blocks[100000];

CASE(classes_are_counted)
{
    static const size_t sizes[] = {16, 100, 1000, 1500, 20000};
    static const unsigned counts[] = {50000, 20000, 3000, 2000, 500};
    const struct sheaf_profile *area = profile_area();
    for (unsigned k = 0; k < 5; k++)
        use(malloc(sizes[k])); /* sets the class up */
    let_count();
    for (unsigned k = 0; k < 5; k++) {
        const struct sheaf_profile_stratum *stratum = stratum_of_size(area, sizes[k]);
        struct sheaf_profile_stratum before = *stratum;
        for (unsigned i = 0; i < counts[k]; i++)
            must((blocks[i] = malloc(sizes[k])));
        for (unsigned i = 0; i < counts[k] / 4; i++)
            free(blocks[i]);
        let_count();
        must(stratum->live_count - before.live_count == counts[k] - counts[k] / 4);
        must(stratum->live_bytes == stratum->live_count * stratum->size);
        must(stratum->alloc_count - before.alloc_count == counts[k]);
        must(stratum->before_count == 0);
    }
}

CASE(large_blocks_are_counted)
{
    const struct sheaf_profile *area = profile_area();
    let_count();
    const struct sheaf_profile_stratum *large = profile_stratum(area, area->strata - 2), *always = large + 1;
    uint64_t bytes = large->live_bytes;
    must(always->live_count == 0 && always->live_bytes == 0);
    for (unsigned i = 0; i < 20; i++)
        use(blocks[i] = malloc(LARGE));
    for (unsigned i = 20; i < 120; i++)
        use(blocks[i] = malloc(100000));
    let_count();
    must(always->live_count == 20 && always->live_bytes >= 20ul * LARGE);
    must(large->live_bytes - bytes >= 100 * 100000 && large->live_bytes - bytes < 100 * 200000);
    for (unsigned i = 0; i < 120; i++)
        free(blocks[i]);
    let_count();
    must(always->live_count == 0 && large->live_bytes == bytes);
}

CASE(the_peak_is_counted)
{
    const struct sheaf_profile *area = profile_area();
    let_count();
    uint64_t before = area->peak_bytes;
    for (unsigned i = 0; i < 50000; i++)
        use(blocks[i] = malloc(1000));
    let_count();
    must(area->peak_bytes >= 50000ul * 1000 && area->peak_bytes < before + 50000ul * 1100 + LARGE);
    const struct sheaf_profile_stratum *stratum = stratum_of_size(area, 1000);
    must(stratum->peak_count >= 50000);
    uint64_t epoch = area->peak_epoch;
    for (unsigned i = 0; i < 50000; i++)
        free(blocks[i]);
    let_count();
    must(area->peak_epoch == epoch && stratum->peak_count >= 50000 && stratum->live_count < 1000);
}

/*
 * Many changes within one tick of the clock: either the strata are counted after them, or the area says that they
 * were not.
 */
CASE(old_counts_are_told)
{
    const struct sheaf_profile *area = profile_area();
    for (unsigned round = 0; round < 200; round++) {
        for (unsigned i = 0; i < 100; i++)
            use(blocks[i] = malloc(LARGE / 10));
        const struct sheaf_profile_stratum *always = profile_stratum(area, area->strata - 1);
        must(area->strata_old || (always->live_count >= 90 && always->live_count <= 100));
        for (unsigned i = 0; i < 100; i++)
            free(blocks[i]);
        must(area->strata_old || always->live_count == 0);
    }
}

/* ---- churn ---- */

static atomic_bool stop;

static void *churn(void *seed)
{
    uint32_t random = (uint32_t)(uintptr_t)seed;
    void *mine[300];
    while (!stop) {
        for (unsigned i = 0; i < 300; i++) {
            random = random * 1664525 + 1013904223;
            use(mine[i] = malloc(16 + (random >> 16) % 2000));
        }
        for (unsigned i = 0; i < 300; i++)
            free(mine[i]);
    }
    return NULL;
}

/* The sums of weights in a stratum, and of their squares. */
static void weights_of(const struct sheaf_profile *area, unsigned stratum, double *sum, double *square)
{
    const char *at = (const char *)area + area->stacks_at, *last = at + area->stacks_used;
    *sum = *square = 0;
    for (const struct sheaf_profile_stack *stack; at < last; at += stack->bytes) {
        stack = (const void *)at;
        if (stack->stratum != stratum)
            continue;
        *sum += stack->alloc_count;
        *square += stack->alloc_square;
    }
}

/*
 * Where much is allocated and freed at once, samples are left out. The weights of the others must make up for them:
 * in each class their sum is the number of allocations, within six errors.
 */
CASE(weights_follow_the_pace)
{
    const struct sheaf_profile *area = profile_area();
    pthread_t threads[3];
    for (uintptr_t i = 0; i < 3; i++)
        must(!pthread_create(&threads[i], NULL, churn, (void *)i));
    for (unsigned i = 0; i < 20; i++) {
        use(blocks[i] = malloc(LARGE));
        usleep(100000);
    }
    stop = true;
    for (unsigned i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    let_count();
    must(profile_stratum(area, area->strata - 1)->live_count == 20);
    double all = 0, sums = 0, squares = 0;
    for (unsigned i = 0; i < area->strata - 2; i++) {
        double sum, square, allocated = (double)profile_stratum(area, i)->alloc_count;
        weights_of(area, i, &sum, &square);
        all += allocated;
        sums += sum;
        squares += square;
        must(sum * sum <= 30 * square || fabs(sum - allocated) < 6 * sqrt(square));
    }
    dprintf(1, "# %.0f allocations, estimated as %.0f +- %.0f by %llu samples\n", all, sums, sqrt(squares),
            (unsigned long long)area->taken);
    must(fabs(sums - all) < 6 * sqrt(squares));
}

/* Samples of the largest blocks cannot be left out, so their time must not be saved on others. */
CASE(large_churn_hides_nothing)
{
    const struct sheaf_profile *area = profile_area();
    use(malloc(400)); /* sets the class up */
    let_count();
    const struct sheaf_profile_stratum *stratum = stratum_of_size(area, 400);
    unsigned number = (unsigned)(stratum - profile_stratum(area, 0)), n = 0;
    double sum, square, sum_before, square_before;
    weights_of(area, number, &sum_before, &square_before);
    for (; n < 40000; n++) {
        for (unsigned i = 0; i < 4; i++) {
            void *p = malloc(1 << 20);
            use(p);
            free(p);
        }
        use(blocks[n] = malloc(400));
    }
    weights_of(area, number, &sum, &square);
    sum -= sum_before;
    square -= square_before;
    dprintf(1, "# %u allocations, estimated as %.0f +- %.0f\n", n, sum, sqrt(square));
    must(sum * sum >= 8 * square); /* as many as eight samples with equal weights; about thirty are drawn */
    while (n)
        free(blocks[--n]);
}

BEFORE_CASES(argv)
{
    profile_environment(argv, "512K", NULL);
}
