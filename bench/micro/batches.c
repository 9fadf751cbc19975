/*
 * Many objects are allocated, then all are freed, in one of three orders. Batches larger than the cache of a thread
 * or a CPU also measure the layers behind it.
 */
#include "../test.h"

#include <sys/mman.h>

static void **objects;
static uint32_t *order; /* of frees, if shuffled */
static uint16_t *sizes; /* of objects, if mixed */

static void prepare_batch(const struct test *test)
{
    uint64_t seed = 88172645463325252ULL;
    objects = scratch(test->count * sizeof(*objects));
    order = scratch(test->count * sizeof(*order));
    sizes = scratch(test->count * sizeof(*sizes));
    for (uint32_t i = 0; i < test->count; i++) {
        uint32_t other = (uint32_t)(random_next(&seed) % (i + 1));
        order[i] = order[other];
        order[other] = i;
        sizes[i] = (uint16_t)random_small_size(&seed);
    }
}

static void finish_batch(const struct test *test)
{
    munmap(objects, test->count * sizeof(*objects));
    munmap(order, test->count * sizeof(*order));
    munmap(sizes, test->count * sizeof(*sizes));
}

static void free_batch(size_t count, enum order how)
{
    switch (how) {
    case FIFO:
        for (size_t i = 0; i < count; i++)
            give(objects[i]);
        break;
    case LIFO:
        for (size_t i = count; i-- > 0;)
            give(objects[i]);
        break;
    case SHUFFLED:
        for (size_t i = 0; i < count; i++)
            give(objects[order[i]]);
        break;
    }
}

static uint64_t run_batches(const struct test *test, uint64_t ops)
{
    size_t count = test->count, size = test->size;
    uint64_t done = 0;
    do {
        for (size_t i = 0; i < count; i++)
            objects[i] = take(size);
        free_batch(count, test->order);
        done += count;
    } while (done < ops);
    return done;
}

static uint64_t run_mixed(const struct test *test, uint64_t ops)
{
    size_t count = test->count;
    uint64_t done = 0;
    do {
        for (size_t i = 0; i < count; i++)
            objects[i] = take(sizes[i]);
        free_batch(count, test->order);
        done += count;
    } while (done < ops);
    return done;
}

#define BATCH_WHAT(n, how)                                                                                           \
    n " objects of 64 bytes are allocated, then freed " how "; an op is one malloc and one free"
#define BATCH(n, label, how, text)                                                                                   \
    {                                                                                                                \
        .name = "batch-" #n "-" label, .what = BATCH_WHAT(#n, text), .ops = 4000000, .repetitions = 7, .size = 64,   \
        .count = n, .order = how, .prepare = prepare_batch, .run = run_batches, .finish = finish_batch,              \
    }
#define BATCHES(n)                                                                                                   \
    BATCH(n, "fifo", FIFO, "oldest first"), BATCH(n, "lifo", LIFO, "newest first"),                                  \
        BATCH(n, "shuffled", SHUFFLED, "in random order")

static const struct test batch_tests[] = {
    BATCHES(10),
    BATCHES(100),
    BATCHES(1000),
    BATCHES(10000),
    {.name = "batch-1000-mixed",
     .what =
         "1000 objects of 16 to 4096 bytes, mostly small, freed in random order; an op is one malloc and one free",
     .ops = 4000000,
     .repetitions = 7,
     .count = 1000,
     .order = SHUFFLED,
     .prepare = prepare_batch,
     .run = run_mixed,
     .finish = finish_batch},
    {0},
};
ADD_TESTS(batch_tests)
