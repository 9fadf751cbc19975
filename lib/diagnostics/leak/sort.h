/* Sorting of the tables of a scan. libc's qsort() may allocate, which nothing may during a scan. */
#ifndef SHEAF_LEAK_SORT_H
#define SHEAF_LEAK_SORT_H

#include "platform/os/compiler.h"

/* Whether a stands before b. */
typedef bool sort_order(const void *a, const void *b);

/* Sort `n` entries of `size` bytes, a multiple of 8, that are aligned to 8. Equal entries may change places. Takes
 * n log n steps, and no memory. */
void leak_sort(void *all, size_t n, size_t size, sort_order *precedes);

#endif
