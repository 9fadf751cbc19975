#ifndef BENCH_MICRO_TABLES_H
#define BENCH_MICRO_TABLES_H

#include "../test.h"

extern const struct test pairs_tests[];
extern const struct test batch_tests[];
extern const struct test form_tests[];
extern const struct test thread_tests[];
extern const struct test memory_tests[];
extern const struct test process_tests[];

#endif
