/*
 * Fault injection: allocations that fail on purpose, to test a program's error paths. SHEAF_FAIL follows the
 * kernel's failslab, whose lib/fault-inject.c defines probability, interval, times and space.
 *
 * A cache that may fail has INSTRUMENT_FAIL and therefore no sheaves: all its allocations take the slow path, where
 * they are counted. One request of the program counts once, however many attempts the allocator makes for it. Safe
 * in signal handlers: there are only numbers, atomic operations and one write(). A forked child continues with its
 * parent's numbers.
 */
#ifndef SHEAF_FEATURE_FAIL_H
#define SHEAF_FEATURE_FAIL_H

#include "platform/os/compiler.h"

#define FAIL_LARGE "malloc-large" /* the name of large blocks */

/* Whether allocations of the cache with this name may fail. `marked`: the cache has SLAB_FAILSLAB, so its name
 * need not match. */
bool fail_concerns(const char *cache, bool marked);

/* Whether large blocks may fail. */
extern hidden bool fail_large;

/* Count an allocation of `size` bytes from a cache that may fail. Returns true if it must fail. */
bool fail_now(const char *cache, size_t size);

/* At exit: print how many allocations failed, unless none was counted. */
void fail_report(void);

#endif
