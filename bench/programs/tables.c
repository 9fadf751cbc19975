/* The tests of bench-programs: small programs, each modelled on a pattern in the literature that its file cites. */
#include "tables.h"

const struct test *const tables[] = {
    server_tests,   lifetime_tests, batch_tests,         asymmetric_tests, sharing_tests,
    compiler_tests, algebra_tests,  fragmentation_tests, idle_tests,       NULL,
};
