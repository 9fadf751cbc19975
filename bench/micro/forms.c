/* calloc and posix_memalign. */
#include "../test.h"

#include <sys/mman.h>

enum { BATCH = 1000 };

static void **objects; /* BATCH places */

static void prepare_forms(const struct test *test)
{
    (void)test;
    objects = scratch(BATCH * sizeof(*objects));
}

static void finish_forms(const struct test *test)
{
    (void)test;
    munmap(objects, BATCH * sizeof(*objects));
}

/* Allocates zeroed memory; checks and writes one word of it. */
static void *take_zeroed(size_t size)
{
    uint64_t *p = opaque(calloc(1, size));
    if (p == NULL)
        fail("no memory for %zu bytes; use a smaller --ops or a larger machine", size);
    if (p[size / 16] != 0)
        fail("calloc returned memory that is not zero; the allocator is broken");
    p[0] = p[size / 16] = size;
    return p;
}

static void *take_aligned(size_t alignment, size_t size)
{
    void *p = NULL;
    if (posix_memalign(&p, alignment, size) != 0)
        fail("no memory for %zu bytes aligned to %zu; use a smaller --ops", size, alignment);
    p = opaque(p);
    if (((uintptr_t)p & (alignment - 1)) != 0)
        fail("posix_memalign returned memory not aligned to %zu; the allocator is broken", alignment);
    *(uint64_t *)p = size;
    return p;
}

static uint64_t run_calloc(const struct test *test, uint64_t ops)
{
    for (uint64_t i = 0; i < ops; i++)
        give(take_zeroed(test->size));
    return ops;
}

static uint64_t run_calloc_batches(const struct test *test, uint64_t ops)
{
    uint64_t done = 0;
    for (; done < ops; done += BATCH) {
        for (unsigned i = 0; i < BATCH; i++)
            objects[i] = take_zeroed(test->size);
        for (unsigned i = 0; i < BATCH; i++)
            give(objects[i]);
    }
    return done;
}

/* `count` is the alignment. */
static uint64_t run_aligned(const struct test *test, uint64_t ops)
{
    for (uint64_t i = 0; i < ops; i++)
        give(take_aligned(test->count, test->size));
    return ops;
}

static uint64_t run_aligned_batches(const struct test *test, uint64_t ops)
{
    uint64_t done = 0;
    for (; done < ops; done += BATCH) {
        for (unsigned i = 0; i < BATCH; i++)
            objects[i] = take_aligned(test->count, test->size);
        for (unsigned i = 0; i < BATCH; i++)
            give(objects[i]);
    }
    return done;
}

#define CALLOC(bytes, many)                                                                                          \
    {                                                                                                                \
        .name = "calloc-" #bytes, .what = "calloc and free of " #bytes " bytes; an op is one pair", .ops = many,     \
        .repetitions = 7, .size = bytes, .run = run_calloc,                                                          \
    }
#define ALIGNED(alignment, bytes)                                                                                    \
    {                                                                                                                \
        .name = "aligned-" #alignment,                                                                               \
        .what = "posix_memalign and free of " #bytes " bytes aligned to " #alignment "; an op is one pair",          \
        .ops = 4000000, .repetitions = 7, .count = alignment, .size = bytes, .run = run_aligned,                     \
    }

#define FORM_BATCH(label, text, call, alignment, bytes, body)                                                        \
    {                                                                                                                \
        .name = label, .what = "1000 objects of " text ", freed oldest first; an op is one " call " and one free",   \
        .ops = 4000000, .repetitions = 7, .count = alignment, .size = bytes, .prepare = prepare_forms, .run = body,  \
        .finish = finish_forms,                                                                                      \
    }

static const struct test form_tests[] = {
    CALLOC(64, 8000000),
    CALLOC(1024, 4000000),
    CALLOC(65536, 100000),
    FORM_BATCH("calloc-batch", "256 zeroed bytes", "calloc", 0, 256, run_calloc_batches),
    ALIGNED(64, 64),
    ALIGNED(256, 1000),
    ALIGNED(4096, 4096),
    FORM_BATCH("aligned-batch", "192 bytes aligned to 64", "posix_memalign", 64, 192, run_aligned_batches),
    {0},
};
ADD_TESTS(form_tests)
