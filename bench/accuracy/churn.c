/*
 * Three threads churn: each allocates 300 blocks of 16 to 2015 bytes and frees them at once, again and again. Beside
 * them site_big holds 20 blocks of 8 MB, and site_small grows by blocks of 400 bytes to 12 MB in 2 s.
 *
 * The truth is the sum of what the sites requested, of which nothing is freed.
 */
#define _GNU_SOURCE
#include "truth.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 3, CHURNED = 300, BIG = 20, SMALL = 30000, SLEEP_AFTER = 100, SLEEP_US = 6667 };

static size_t big_bytes, small_bytes;
static void *big[BIG], *small[SMALL];

static SITE void *site_churn(size_t bytes)
{
    return malloc(bytes);
}

static SITE void *site_big(size_t bytes)
{
    void *p = malloc(bytes);
    if (!p)
        abort();
    memset(p, 1, bytes);
    big_bytes += bytes;
    return p;
}

static SITE void *site_small(size_t bytes)
{
    void *p = malloc(bytes);
    if (!p)
        abort();
    small_bytes += bytes;
    return p;
}

static void *churn(void *seed)
{
    uint32_t random = (uint32_t)(uintptr_t)seed;
    void *blocks[CHURNED];
    for (;;) {
        for (int i = 0; i < CHURNED; i++) {
            random = random * 1664525 + 1013904223;
            blocks[i] = site_churn(16 + (random >> 16) % 2000);
            __asm__ volatile("" : : "r"(blocks[i]) : "memory");
        }
        for (int i = 0; i < CHURNED; i++)
            free(blocks[i]);
    }
    return NULL;
}

int main(void)
{
    for (uintptr_t i = 1; i <= THREADS; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, churn, (void *)i))
            abort();
    }
    for (int i = 0; i < BIG; i++)
        big[i] = site_big(8000000);
    for (int i = 0; i < SMALL; i++) {
        small[i] = site_small(400);
        if (i % SLEEP_AFTER == 0)
            usleep(SLEEP_US);
    }
    truth_held("site_big", big_bytes);
    truth_held("site_small", small_bytes);
    truth_ready();
    exit(0);
}
