/* SHEAF_HARDEN=sample: faults in sampled allocations. Reports name the allocation and the free. */
#define _GNU_SOURCE
#include "option.h"

#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>

static void *volatile kept;
static volatile char seen;

/* Allocates until an object is sampled: only then malloc_usable_size() is the requested size, not the class's. */
static char *sampled(size_t n)
{
    for (int i = 0; i < 100000; i++) {
        char *p = malloc(n);
        must(p);
        if (malloc_usable_size(p) == n)
            return p;
        free(p);
    }
    must(!"an allocation is sampled");
    return NULL;
}

static void sample_behind(void)
{
    volatile char *p = sampled(200);
    for (int i = 0; i < 4097; i++)
        p[i] = 1;
}

static void sample_before(void)
{
    volatile char *p = sampled(200);
    for (int i = 0; i < 4097; i++)
        p[-i] = 1;
}

static void sample_after_free(void)
{
    char *p = sampled(200);
    free(p);
    seen = p[17];
}

static void sample_double_free(void)
{
    char *p = sampled(200);
    free(p);
    free(p);
}

static void sample_realloc_freed(void)
{
    char *p = sampled(200);
    free(p);
    kept = realloc(p, 300);
}

static void sample_interior(void)
{
    free(sampled(200) + 8);
}

/* The guard page does not catch a write into the slack before it; it is found when the object is freed. */
static void sample_slack(void)
{
    char *p = sampled(200);
    p[200] = 1;
    free(p);
}

static void sample_contract(void)
{
    char *all[400];
    for (int i = 0; i < 400; i++) {
        all[i] = sampled(200 + (size_t)(i % 100 < 8));
        must(((uintptr_t)all[i] & 15) == 0 && all_are(all[i], 200, 0));
        memset(all[i], i, 200);
        if (i >= 200) {
            must(all_are(all[i - 200], 200, (i - 200) & 255));
            must((all[i] = realloc(all[i], 1000)) && all_are(all[i], 200, i & 255));
            free(all[i - 200]);
        }
    }
}

/* One in 100 allocations is sampled at random: about 1000 of 100000, with a standard deviation of 32. */
static void sample_rate(void)
{
    int taken = 0;
    for (int i = 0; i < 100000; i++) {
        void *p = malloc(200);
        taken += malloc_usable_size(p) == 200;
        free(p);
    }
    must(taken > 600 && taken < 1400);
}

static void *free_one(void *p)
{
    free(p);
    return NULL;
}

static void sample_other_thread(void)
{
    pthread_t t;
    void *p = sampled(200);
    must(pthread_create(&t, NULL, free_one, p) == 0);
    pthread_join(t, NULL);
    free(p);
}

static volatile int caught;
static void own_handler(int signal)
{
    caught = signal;
    _exit(0);
}

/* The program's own handler replaces Sheaf's, which was installed before. */
static void sample_own_handler(void)
{
    char *p = sampled(200);
    free(p);
    signal(SIGSEGV, own_handler);
    seen = p[17];
    must(!"handled");
}

#define HARDEN(list) "SHEAF_HARDEN=" list

static const struct option_case cases[] = {
    {"sample-catches-writes-past-the-end",
     HARDEN("sample=10"),
     sample_behind,
     SIGSEGV,
     {"access past the end at", "(sampled: 200 bytes at", "allocated by thread"}},
    {"sample-catches-writes-before-the-start",
     HARDEN("sample=10"),
     sample_before,
     SIGSEGV,
     {"access before the start at", "allocated by"}},
    {"sample-catches-reads-after-free",
     HARDEN("sample=10"),
     sample_after_free,
     SIGSEGV,
     {"access after free at", "freed by thread", "(modes+0x"}},
    {"sample-reports-double-frees",
     HARDEN("sample=10"),
     sample_double_free,
     SIGABRT,
     {"double free of", "allocated by", "freed by"}},
    {"sample-reports-realloc-after-free",
     HARDEN("sample=10"),
     sample_realloc_freed,
     SIGABRT,
     {"use after free of", "freed by"}},
    {"sample-reports-interior-pointers",
     HARDEN("sample=10"),
     sample_interior,
     SIGABRT,
     {"free of interior pointer", "allocated by"}},
    {"sample-reports-writes-into-the-slack",
     HARDEN("sample=10"),
     sample_slack,
     SIGABRT,
     {"write past the end at", "allocated by"}},
    {"samples-keep-the-contract-of-malloc", HARDEN("sample=10"), sample_contract, 0, {NULL}},
    {"one-allocation-in-100-is-sampled", HARDEN("sample=100"), sample_rate, 0, {NULL}},
    {"one-allocation-in-100-is-sampled-without-sheaves", HARDEN("sample=100,check"), sample_rate, 0, {NULL}},
    {"sample-reports-double-frees-in-two-threads",
     HARDEN("sample=10"),
     sample_other_thread,
     SIGABRT,
     {"double free of", "allocated by", "freed by"}},
    {"the-program-can-replace-the-handler", HARDEN("sample=10"), sample_own_handler, 0, {NULL}},
};

int main(int argc, char **argv)
{
    return run_option_cases(argc, argv, cases, sizeof(cases) / sizeof(*cases));
}
