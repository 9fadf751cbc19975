/*
 * Allocations that fail on purpose, so that a program's own error paths can be tried: SHEAF_FAIL, after the kernel's
 * failslab (lib/fault-inject.c has the words: probability, interval, times, space).
 *
 * A cache that may fail has DETOUR_FAIL and so no sheaves: all its allocations come by the slow path, where they are
 * counted. One allocation of the program is one call here, whatever is tried for it below. Numbers, atomics and one
 * write(): safe in signal handlers, and a forked child goes on counting from its parent's numbers.
 */
#ifndef SHEAF_FEATURE_FAIL_H
#define SHEAF_FEATURE_FAIL_H

#include "os/compiler.h"

#define FAIL_LARGE "malloc-large" /* what large blocks are called */

/* Whether allocations of the cache may fail, by its name. `marked`: asked for by the cache itself. */
bool fail_concerns(const char *cache, bool marked);

/* Whether large blocks may fail. */
extern hidden bool fail_large;

/* Count an allocation of `size` bytes from a cache that may fail: true if it is to fail. */
bool fail_now(const char *cache, size_t size);

/* At exit: print how many allocations failed, unless none was counted. */
void fail_tell(void);

#endif
