/* One object at a time, which measures the fast paths alone. */
#include "../test.h"

static uint64_t run_pairs(const struct test *test, uint64_t ops)
{
    size_t size = test->size;
    for (uint64_t i = 0; i < ops; i++)
        give(take(size));
    return ops;
}

#define PAIRS(bytes, many)                                                                                           \
    {                                                                                                                \
        .name = "pairs-" #bytes, .what = "malloc and free of " #bytes " bytes; an op is one pair", .ops = many,      \
        .repetitions = 7, .size = bytes, .run = run_pairs,                                                           \
    }

static const struct test pairs_tests[] = {
    PAIRS(16, 8000000), PAIRS(64, 8000000), PAIRS(256, 8000000), PAIRS(1024, 8000000), PAIRS(16384, 2000000), {0},
};
ADD_TESTS(pairs_tests)
