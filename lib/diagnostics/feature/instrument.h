/*
 * Instruments: features that handle each object of a cache, because it is debugged, hardened or made to fail.
 *
 * An instrumented cache has no sheaves (instruments != 0 implies capacity == 0), so that its words stay 0, each of
 * its operations takes the slow path to these functions, and other caches are not affected. Below the instruments
 * objects are *raw*: slabs, prefilled sheaves and the standing reserve hold raw objects of slab.size bytes.
 * ops->present() makes the user's object from a raw one, and ops->free() turns it back; the two may begin at
 * different addresses.
 */
#ifndef SHEAF_FEATURE_INSTRUMENT_H
#define SHEAF_FEATURE_INSTRUMENT_H

#include "cache/kmem_cache.h"

enum instrument {
    INSTRUMENT_DEBUG = 1,  /* diagnostics/feature/debug.h */
    INSTRUMENT_HARDEN = 2, /* diagnostics/feature/harden.h */
    INSTRUMENT_FAIL = 4,   /* diagnostics/feature/fail.h */
};

/* The instruments of a cache, by its name, its flags and the options. */
uint16_t instruments_for(const char *name, slab_flags_t flags);

/* The operations of an instrumented cache. */
extern hidden const struct cache_ops instrumented_ops;

#endif
