/* The tests of bench-programs: small programs, each after a pattern of the literature that its file names. */
#include "tables.h"

const struct test *const tables[] = {
    server_tests,   lifetime_tests, batch_tests,         asymmetric_tests, sharing_tests,
    compiler_tests, algebra_tests,  fragmentation_tests, idle_tests,       NULL,
};
