/* The tests of bench-micro, in the order of --list. */
#include "tables.h"

const struct test *const tables[] = {
    pairs_tests, batch_tests, form_tests, thread_tests, memory_tests, process_tests, NULL,
};
