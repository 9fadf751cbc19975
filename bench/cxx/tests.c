/* The tests of bench-cxx, a separate program so that libstdc++ does not affect the memory of other tests. */
#include "../test.h"
#include "operators.h"

static uint64_t run_pairs(const struct test *test, uint64_t ops)
{
    return new_and_delete(test->size, ops);
}

static uint64_t run_sized(const struct test *test, uint64_t ops)
{
    (void)test;
    return new_and_sized_delete(ops);
}

static uint64_t run_aligned(const struct test *test, uint64_t ops)
{
    (void)test;
    return aligned_new_and_delete(ops);
}

static uint64_t run_batches(const struct test *test, uint64_t ops)
{
    return new_batches(test->count, ops);
}

static const struct test operator_tests[] = {
    {.name = "new-64",
     .what = "operator new and delete of 64 bytes; an op is one pair",
     .ops = 8000000,
     .repetitions = 7,
     .size = 64,
     .run = run_pairs},
    {.name = "new-sized",
     .what = "operator new of 48 bytes and sized delete; an op is one pair",
     .ops = 8000000,
     .repetitions = 7,
     .run = run_sized},
    {.name = "new-aligned",
     .what = "operator new of 128 bytes aligned to 64, and sized aligned delete; an op is one pair",
     .ops = 4000000,
     .repetitions = 7,
     .run = run_aligned},
    {.name = "new-batch",
     .what = "1000 unique_ptrs to 48 bytes are created, then reset; an op is one object",
     .ops = 4000000,
     .repetitions = 7,
     .count = 1000,
     .run = run_batches},
    {0},
};
ADD_TESTS(operator_tests)
