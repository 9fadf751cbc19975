/*
 * The accuracy of sampled profiles: programs that know what they allocate, by call site, compare it with the
 * estimates.
 *
 * Each case has ROUNDS rounds, each of them with random numbers of its own. A round yields for each site the
 * deviation of the estimate from the truth in units of its standard error. If the estimates are unbiased and their
 * errors are right, such deviations have mean 0 and variance 1. The bounds below fail by chance less than once in a
 * hundred thousand runs: the mean of ROUNDS deviations within 4.5 of its own errors, their variance within 0.4 to 2,
 * and at most six of a hundred beyond three.
 */
#define _GNU_SOURCE
#include "area.h"

#include <math.h>
#include <pthread.h>
#include <stdint.h>

#define ROUNDS 100
#define SITES  4

/* Each site is a section of its own, so that the linker knows where its code begins and ends. */
#define SITE(name)                                                                                                   \
    extern const char __start_code_##name[], __stop_code_##name[];                                                   \
    __attribute__((noinline, section("code_" #name))) static void *name(void *(*get)(size_t), size_t n)              \
    {                                                                                                                \
        void *p = get(n);                                                                                            \
        __asm__ volatile("" ::"r"(p) : "memory");                                                                    \
        return p;                                                                                                    \
    }
SITE(site_0)
SITE(site_1)
SITE(site_2)
SITE(site_3)

static void *(*const sites[SITES])(void *(*)(size_t), size_t) = {site_0, site_1, site_2, site_3};
static const char *const starts[SITES] = {__start_code_site_0, __start_code_site_1, __start_code_site_2,
                                          __start_code_site_3};
static const char *const stops[SITES] = {__stop_code_site_0, __stop_code_site_1, __stop_code_site_2,
                                         __stop_code_site_3};

/* The allocator's caller must be the site, so there are no wrappers around it. */
static void *allocate(unsigned site, void *(*get)(size_t), size_t n)
{
    return sites[site](get, n);
}

/* ---- deviations ---- */

struct deviations {
    double sum, squares;
    unsigned n, far;
};

/* Without variance, all was sampled. */
static void add_deviation(struct deviations *d, double estimate, double truth, double variance)
{
    if (variance == 0) {
        must(estimate == truth);
        return;
    }
    double z = (estimate - truth) / sqrt(variance);
    d->sum += z;
    d->squares += z * z;
    d->n++;
    d->far += fabs(z) > 3;
}

static void judge(const char *what, const struct deviations *d)
{
    if (!d->n)
        return;
    double mean = d->sum / d->n, variance = d->squares / d->n;
    dprintf(1, "# %s: %u deviations, mean %.3f, variance %.2f, %u beyond 3\n", what, d->n, mean, variance, d->far);
    must(fabs(mean) * sqrt(d->n) < 4.5);
    must(variance > 0.4 && variance < 2);
    must(d->far * 100 <= d->n * 6);
}

/* ---- rounds ---- */

/* What a case allocates: at each site so many blocks of these sizes in turn, all alive at the end of the round. */
struct load {
    size_t sizes[SITES];
    unsigned count[SITES];
    void *(*get)(size_t);
    void (*put)(void *);
};

#define BLOCKS_MOST 200000
static void *blocks[BLOCKS_MOST];

/* Every third block is freed at once, so that live and allocated differ. Sites take turns at random. */
static unsigned fill(const struct load *load, double *allocated, double *live, uint32_t *random)
{
    unsigned left[SITES], n = 0, total = 0;
    for (unsigned i = 0; i < SITES; i++)
        total += left[i] = load->count[i];
    while (total) {
        *random = *random * 1664525 + 1013904223;
        unsigned site = (*random >> 16) % SITES;
        if (!left[site])
            continue;
        left[site]--;
        total--;
        void *p = allocate(site, load->get, load->sizes[site]);
        must(p && n < BLOCKS_MOST);
        allocated[site] += (double)load->sizes[site];
        if (left[site] % 3 == 0) {
            load->put(p);
        } else {
            live[site] += (double)load->sizes[site];
            blocks[n++] = p;
        }
    }
    return n;
}

static void run_load(const char *name, const struct load *load)
{
    const struct sheaf_profile *area = profile_area();
    struct deviations allocations = {0}, lives = {0};
    uint32_t random = (uint32_t)getpid();
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct site_sums before[SITES];
        double allocated[SITES] = {0}, live[SITES] = {0};
        for (unsigned i = 0; i < SITES; i++)
            before[i] = profile_sums(area, starts[i], stops[i]);
        unsigned n = fill(load, allocated, live, &random);
        for (unsigned i = 0; i < SITES; i++) {
            struct site_sums now = profile_sums(area, starts[i], stops[i]);
            if (!load->count[i])
                continue;
            add_deviation(&allocations, now.alloc_bytes - before[i].alloc_bytes, allocated[i],
                          now.alloc_variance - before[i].alloc_variance);
            add_deviation(&lives, now.live_bytes, live[i], now.live_variance);
        }
        while (n)
            load->put(blocks[--n]);
        for (unsigned i = 0; i < SITES; i++) /* nothing is live */
            must(profile_sums(area, starts[i], stops[i]).live_bytes == 0);
    }
    char what[64];
    snprintf(what, sizeof(what), "%s, allocated", name);
    judge(what, &allocations);
    snprintf(what, sizeof(what), "%s, live", name);
    judge(what, &lives);
}

/* ---- cases ---- */

static void *zeroed(size_t n)
{
    return calloc(1, n); /* not a tail call of a site: its frame is the innermost, so this case has no sites */
}

CASE(small_objects)
{
    run_load("small", &(struct load){{16, 100, 500, 1000}, {40000, 20000, 8000, 4000}, malloc, free});
}

CASE(larger_classes)
{
    run_load("classes above 1 KiB", &(struct load){{1100, 3000, 9000, 30000}, {3000, 2000, 800, 300}, malloc, free});
}

CASE(large_blocks)
{
    run_load("large", &(struct load){{33000, 50000, 70000, 130000}, {400, 300, 200, 100}, malloc, free});
}

/* C++: the operators that the preloaded object exports. A C program knows them by their mangled names. */
extern void *_Znwm(size_t) __attribute__((weak));
extern void _ZdlPv(void *) __attribute__((weak));
CASE(operators)
{
    must(_Znwm && _ZdlPv);
    run_load("operator new", &(struct load){{24, 200, 800, 5000}, {30000, 10000, 5000, 1000}, _Znwm, _ZdlPv});
}

/* A block that realloc moved or that grew in place counts as allocated where realloc was called. */
CASE(reallocated)
{
    const struct sheaf_profile *area = profile_area();
    struct deviations lives = {0};
    static const size_t sizes[] = {100, 3000, 40000, 200000};
    for (unsigned round = 0; round < ROUNDS; round++) {
        double live = 0;
        struct site_sums first = profile_all(area);
        unsigned n = 0;
        for (unsigned i = 0; i < 2000; i++) {
            void *p = malloc(60);
            size_t size = 60;
            for (unsigned step = 0; step < 4 && i % 10 < 8 - 2 * step; step++)
                must((p = realloc(p, size = sizes[step])));
            blocks[n++] = p;
            live += (double)size;
        }
        struct site_sums now = profile_all(area);
        add_deviation(&lives, now.live_bytes - first.live_bytes, live, now.live_variance - first.live_variance);
        while (n)
            free(blocks[--n]);
    }
    judge("realloc, live", &lives);
}

CASE(zeroed_and_aligned)
{
    const struct sheaf_profile *area = profile_area();
    struct deviations lives = {0};
    for (unsigned round = 0; round < ROUNDS; round++) {
        double live = 0;
        struct site_sums first = profile_all(area);
        unsigned n = 0;
        for (unsigned i = 0; i < 3000; i++) {
            size_t align = 16ul << i % 8;
            char *p = aligned_alloc(align, 4 * align), *q = zeroed(700);
            must(p && q && (uintptr_t)p % align == 0);
            for (unsigned k = 0; k < 700; k++)
                must(!q[k]);
            memset(q, 1, 700);
            blocks[n++] = p;
            blocks[n++] = q;
            live += 4 * (double)align + 700;
        }
        struct site_sums now = profile_all(area);
        add_deviation(&lives, now.live_bytes - first.live_bytes, live, now.live_variance - first.live_variance);
        while (n)
            free(blocks[--n]);
    }
    judge("calloc and aligned_alloc, live", &lives);
}

#define THREADS    4
#define PER_THREAD 20000

static void *allocate_in_thread(void *number)
{
    unsigned site = (unsigned)(uintptr_t)number;
    for (unsigned i = 0; i < PER_THREAD; i++)
        blocks[site * PER_THREAD + i] = allocate(site, malloc, 50 + 100 * site);
    return NULL;
}

/* Another thread than the allocating one frees. */
static void *free_in_thread(void *number)
{
    unsigned site = ((unsigned)(uintptr_t)number + 1) % THREADS;
    for (unsigned i = 0; i < PER_THREAD; i++)
        free(blocks[site * PER_THREAD + i]);
    return NULL;
}

static void all_threads(void *(*run)(void *))
{
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        must(!pthread_create(&threads[i], NULL, run, (void *)i));
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

CASE(threads)
{
    const struct sheaf_profile *area = profile_area();
    struct deviations allocations = {0}, lives = {0};
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct site_sums before[THREADS];
        for (unsigned i = 0; i < THREADS; i++)
            before[i] = profile_sums(area, starts[i], stops[i]);
        all_threads(allocate_in_thread);
        for (unsigned i = 0; i < THREADS; i++) {
            struct site_sums now = profile_sums(area, starts[i], stops[i]);
            double truth = PER_THREAD * (50.0 + 100 * i);
            add_deviation(&allocations, now.alloc_bytes - before[i].alloc_bytes, truth,
                          now.alloc_variance - before[i].alloc_variance);
            add_deviation(&lives, now.live_bytes, truth, now.live_variance);
        }
        all_threads(free_in_thread);
        for (unsigned i = 0; i < THREADS; i++)
            must(profile_sums(area, starts[i], stops[i]).live_bytes == 0);
    }
    judge("threads, allocated", &allocations);
    judge("threads, live", &lives);
}

/* A child has the live samples of its parent, frees some of them, and counts its own allocations from zero. */
static void child_of_round(int result)
{
    const struct sheaf_profile *area = profile_area();
    struct site_sums inherited = profile_sums(area, starts[0], stops[0]);
    must(inherited.alloc_bytes == 0 && area->pid_of_parent == (uint64_t)getppid());
    for (unsigned i = 0; i < 10000; i++)
        free(blocks[i]);
    for (unsigned i = 0; i < 10000; i++)
        must(allocate(1, malloc, 150));
    struct site_sums sums[2] = {profile_sums(area, starts[0], stops[0]), profile_sums(area, starts[1], stops[1])};
    must(write(result, sums, sizeof(sums)) == sizeof(sums));
    _exit(0);
}

CASE(forks)
{
    struct deviations inherited = {0}, own = {0};
    for (unsigned i = 0; i < 20000; i++)
        blocks[i] = allocate(0, malloc, 200);
    for (unsigned round = 0; round < ROUNDS; round++) {
        int result[2];
        struct site_sums sums[2];
        for (unsigned i = 0; i < 1000; i++) /* a child continues its parent's random numbers */
            free(allocate(2, malloc, 1000));
        must(!pipe(result));
        pid_t child = fork();
        if (child == 0)
            child_of_round(result[1]);
        must(read(result[0], sums, sizeof(sums)) == sizeof(sums));
        must_succeed(child);
        close(result[0]);
        close(result[1]);
        if (!round)
            add_deviation(&inherited, sums[0].live_bytes, 10000 * 200.0, sums[0].live_variance);
        add_deviation(&own, sums[1].alloc_bytes, 10000 * 150.0, sums[1].alloc_variance);
        must(sums[1].alloc_bytes == sums[1].live_bytes);
    }
    must(inherited.squares < 25); /* one draw, seen by every child */
    judge("forked children, allocated", &own);
}

BEFORE_CASES(argv)
{
    profile_environment(argv, "16K", "0");
}
