/* The tests of bench-rest: what stays resident when a program has freed what it used. */
#include "tables.h"

const struct test *const tables[] = {burst_tests, sawtooth_tests, NULL};
