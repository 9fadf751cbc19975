/*
 * A leak beside churn. A thread replaces random ones of 300 blocks of 16 to 3015 bytes, while site_leak allocates
 * blocks of 100 to 2999 bytes that nobody frees: 22 MiB in about 2 s, and after a pause as much again.
 *
 * The truth is the sum of what the leak requested. The growth between two moments follows from the lines that say
 * when the leak had which size.
 */
#define _GNU_SOURCE
#include "truth.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

enum { CHURNED = 300, LEAKED = 22 << 20, MOST = 100000, SLEEP_AFTER = 50, SLEEP_US = 6000 };

static void *kept[MOST];
static size_t leaked_bytes;
static unsigned leaked;
static uint32_t seed = 7;

static SITE void *site_churn(size_t bytes)
{
    return malloc(bytes);
}

static SITE void *site_leak(size_t bytes)
{
    void *p = malloc(bytes);
    if (!p)
        abort();
    leaked_bytes += bytes;
    return p;
}

static void *churn(void *unused)
{
    uint32_t random = 1;
    void *blocks[CHURNED] = {0};
    (void)unused;
    for (;;) {
        uint32_t i = (random >> 8) % CHURNED;
        free(blocks[i]);
        random = random * 1664525 + 1013904223;
        blocks[i] = site_churn(16 + (random >> 16) % 3000);
        __asm__ volatile("" : : "r"(blocks[i]) : "memory");
    }
    return NULL;
}

/* Both halves come from one stack, as those of a leak do. */
static SITE void leak(void)
{
    size_t until = LEAKED;
    while (leaked < MOST) {
        seed = seed * 1664525 + 1013904223;
        kept[leaked++] = site_leak(100 + (seed >> 16) % 2900);
        if (leaked % SLEEP_AFTER == 0) {
            truth_grown("site_leak", leaked_bytes);
            usleep(SLEEP_US);
        }
        if (leaked_bytes >= until) {
            truth_grown("site_leak", leaked_bytes);
            truth_held("site_leak", leaked_bytes);
            truth_ready();
            until += LEAKED;
        }
    }
}

int main(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, churn, NULL))
        abort();
    leak();
    exit(0);
}
