#ifndef BENCH_PROGRAMS_TABLES_H
#define BENCH_PROGRAMS_TABLES_H

#include "../test.h"

extern const struct test server_tests[];
extern const struct test lifetime_tests[];
extern const struct test batch_tests[];
extern const struct test asymmetric_tests[];
extern const struct test sharing_tests[];
extern const struct test compiler_tests[];
extern const struct test algebra_tests[];
extern const struct test fragmentation_tests[];
extern const struct test idle_tests[];

#endif
