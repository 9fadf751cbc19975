/* The log of tests/names: which functions of the program's own ran, and whose memory a pointer is. In calls.cpp. */
#ifndef SHEAF_TESTS_NAMES_H
#define SHEAF_TESTS_NAMES_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A heap is announced under its letter. */
void names_heap(char tag, const char *heap, size_t size);

/* A function of the malloc `tag` ran. */
void names_ran(char tag, const char *function);

/* Call all entry points, and print the log. */
int names_call_all(void);

#ifdef __cplusplus
}
#endif
#endif
