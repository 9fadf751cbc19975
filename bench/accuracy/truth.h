/*
 * How a program tells bench/accuracy.py what it holds, and when. The lines go to standard output, and none of these
 * functions allocates memory:
 *
 *     held NAME BYTES       the allocation site NAME holds so many bytes, as requested
 *     peak NAME BYTES       it held so many when the program held the most
 *     grown NAME NS BYTES   it holds so many since this moment, in nanoseconds since 1970
 *     ready PID             the figures hold until a line arrives on standard input
 */
#ifndef ACCURACY_TRUTH_H
#define ACCURACY_TRUTH_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Keeps the compiler from making one function of several sites, and from calling them in another way. */
#ifdef __clang__
#define SITE __attribute__((noinline, optnone))
#else
#define SITE __attribute__((noinline, noclone, noipa))
#endif

void truth_held(const char *name, size_t bytes);
void truth_peak(const char *name, size_t bytes);
void truth_grown(const char *name, size_t bytes);

/* Has the profiler write its profile, if accuracy_dump() is preloaded, and waits for a line. */
void truth_ready(void);

#ifdef __cplusplus
}
#endif

#endif
