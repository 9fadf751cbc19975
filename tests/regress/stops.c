/* Sampling leaves the exchanges of the ends out of the slow path while the next sample is far away. Includes internal
 * headers. */
#include "../cases.h"
#include "cache/kmem_cache.h"
#include "config/config.h"
#include "sheaf/malloc.h"
#include "slot/counters.h"

enum { SIZE = 64, QUEUE = 100, OPERATIONS = 1 << 20 };

void sheaf_configure(struct sheaf_config *config)
{
    config->profile = 1ull << 40;
}

/*
 * The first sheaf gets a stop while the slot has no push end, so that the exact distance is kept. The queue then
 * exchanges the ends about once for each sheaf; an account is full after some thousand operations.
 */
static void a_far_stop(void)
{
    void *queue[QUEUE];
    for (int i = 0; i < QUEUE; i++)
        must((queue[i] = sheaf_malloc(SIZE)));
    unsigned number = CACHE_FIRST;
    while (!cache_in_use(cache_at(number)) || cache_at(number)->object_size < SIZE)
        number++;
    uint64_t before = counter_sum(number, COUNT_alloc_slowpath);
    for (int i = 0; i < OPERATIONS; i++) {
        sheaf_free(queue[i % QUEUE]);
        must((queue[i % QUEUE] = sheaf_malloc(SIZE)));
    }
    must(counter_sum(number, COUNT_alloc_slowpath) - before < OPERATIONS / 2000);
}

static const struct test_case cases[] = {
    {"a-far-stop-keeps-exchanges-fast", a_far_stop},
};

int main(int argc, char **argv)
{
    return run_cases(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
