/* SHEAF_HARDEN=sample: faults in sampled allocations, each told with who allocated and who freed. */
#define _GNU_SOURCE
#include "told.h"

#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>

static void *volatile kept;
static volatile char seen;

/* Samples lie outside of what malloc has elsewhere: the slack of an object there is at least a few bytes. */
static char *sampled(size_t n)
{
    for (int i = 0; i < 100000; i++) {
        char *p = malloc(n);
        must(p);
        if (malloc_usable_size(p) == n)
            return p;
        free(p);
    }
    must(!"a sample");
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

/* A byte that the page's end does not catch is found when it is freed. */
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

/* One of 100, give or take what chance gives: of 100000, 1000 +- 5 sigma. */
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

/* The program's own handler has the last word, before and after the first allocation. */
static void sample_own_handler(void)
{
    char *p = sampled(200);
    free(p);
    signal(SIGSEGV, own_handler);
    seen = p[17];
    must(!"handled");
}

#define HARDEN(list) "SHEAF_HARDEN=" list

static const struct told_case cases[] = {
    {"sample-behind",
     HARDEN("sample=10"),
     sample_behind,
     SIGSEGV,
     {"access behind the end at", "(sampled: 200 bytes at", "allocated by thread"}},
    {"sample-before", HARDEN("sample=10"), sample_before, SIGSEGV, {"access before the start at", "allocated by"}},
    {"sample-after-free",
     HARDEN("sample=10"),
     sample_after_free,
     SIGSEGV,
     {"access after free at", "freed by thread", "(told+0x"}},
    {"sample-double-free",
     HARDEN("sample=10"),
     sample_double_free,
     SIGABRT,
     {"double free of", "allocated by", "freed by"}},
    {"sample-realloc-freed", HARDEN("sample=10"), sample_realloc_freed, SIGABRT, {"use after free of", "freed by"}},
    {"sample-interior", HARDEN("sample=10"), sample_interior, SIGABRT, {"free of interior pointer", "allocated by"}},
    {"sample-slack", HARDEN("sample=10"), sample_slack, SIGABRT, {"write behind the end at", "allocated by"}},
    {"sample-contract", HARDEN("sample=10"), sample_contract, 0, {NULL}},
    {"sample-rate", HARDEN("sample=100"), sample_rate, 0, {NULL}},
    {"sample-rate-without-sheaves", HARDEN("sample=100,check"), sample_rate, 0, {NULL}},
    {"sample-other-thread",
     HARDEN("sample=10"),
     sample_other_thread,
     SIGABRT,
     {"double free of", "allocated by", "freed by"}},
    {"sample-own-handler", HARDEN("sample=10"), sample_own_handler, 0, {NULL}},
};

int main(int argc, char **argv)
{
    return told_cases(argc, argv, cases, sizeof(cases) / sizeof(*cases));
}
