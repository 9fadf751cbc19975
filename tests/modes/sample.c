/* SHEAF_HARDEN=sample: faults in sampled allocations. Reports name the allocation and the free. */
#define _GNU_SOURCE
#include "option.h"

#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>

#define HARDEN(list) "SHEAF_HARDEN=" list

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

OPTION_CASE(sample_catches_writes_past_the_end, HARDEN("sample=10"), SIGSEGV, "access past the end at",
            "(sampled: 200 bytes at", "allocated by thread")
{
    volatile char *p = sampled(200);
    for (int i = 0; i < 4097; i++)
        p[i] = 1;
}

OPTION_CASE(sample_catches_writes_before_the_start, HARDEN("sample=10"), SIGSEGV, "access before the start at",
            "allocated by")
{
    volatile char *p = sampled(200);
    for (int i = 0; i < 4097; i++)
        p[-i] = 1;
}

OPTION_CASE(sample_catches_reads_after_free, HARDEN("sample=10"), SIGSEGV, "access after free at", "freed by thread",
            "(again+0x")
{
    char *p = sampled(200);
    free(p);
    seen = p[17];
}

OPTION_CASE(sample_reports_double_frees, HARDEN("sample=10"), SIGABRT, "double free of", "allocated by", "freed by")
{
    char *p = sampled(200);
    free(p);
    free(p);
}

OPTION_CASE(sample_reports_realloc_after_free, HARDEN("sample=10"), SIGABRT, "use after free of", "freed by")
{
    char *p = sampled(200);
    free(p);
    kept = realloc(p, 300);
}

OPTION_CASE(sample_reports_interior_pointers, HARDEN("sample=10"), SIGABRT, "free of interior pointer",
            "allocated by")
{
    free(sampled(200) + 8);
}

/* The guard page does not catch a write into the slack before it; it is found when the object is freed. */
OPTION_CASE(sample_reports_writes_into_the_slack, HARDEN("sample=10"), SIGABRT, "write past the end at",
            "allocated by")
{
    char *p = sampled(200);
    p[200] = 1;
    free(p);
}

OPTION_CASE(samples_keep_the_contract_of_malloc, HARDEN("sample=10"), 0, NULL)
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
OPTION_CASE(one_allocation_in_100_is_sampled, HARDEN("sample=100"), 0, NULL)
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

OPTION_CASE(sample_reports_double_frees_in_two_threads, HARDEN("sample=10"), SIGABRT, "double free of",
            "allocated by", "freed by")
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
OPTION_CASE(the_program_can_replace_the_handler, HARDEN("sample=10"), 0, NULL)
{
    char *p = sampled(200);
    free(p);
    signal(SIGSEGV, own_handler);
    seen = p[17];
    must(!"handled");
}

OPTION_CASE_OF(one_allocation_in_100_is_sampled, one_allocation_in_100_is_sampled_without_sheaves,
               HARDEN("sample=100,check"), 0, NULL)
