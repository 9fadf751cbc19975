/* The tests of bench-rest, which measure resident memory after a program has freed most of its memory. */
#include "tables.h"

const struct test *const tables[] = {burst_tests, sawtooth_tests, NULL};
