#ifndef BENCH_REST_TABLES_H
#define BENCH_REST_TABLES_H

#include "../test.h"

extern const struct test burst_tests[];
extern const struct test sawtooth_tests[];

#endif
