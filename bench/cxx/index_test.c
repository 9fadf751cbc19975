/* The test of bench-index. */
#include "../test.h"
#include "operators.h"

static uint64_t run_index(const struct test *test, uint64_t ops)
{
    uint64_t done = build_index((unsigned)test->count, ops);
    if (done == 0)
        fail("no word of the text is in the index");
    return done;
}

static const struct test index_tests[] = {
    {.name = "cxx-index",
     .what = "4 C++ threads index words in maps of strings and vectors, merge them and look words up; an op is "
             "one word",
     .ops = 3000000,
     .repetitions = 1,
     .cold = 1,
     .count = 4,
     .run = run_index},
    {0},
};
ADD_TESTS(index_tests)
