/*
 * The choice of debugged caches: LETTERS[,CACHE,...][;LETTERS[,CACHE,...]]..., as in the kernel's slab_debug. The
 * first part that names the cache (* and ? match) decides; else the part without names; else the cache is not
 * debugged.
 */
#ifndef SHEAF_FEATURE_DEBUG_SPEC_H
#define SHEAF_FEATURE_DEBUG_SPEC_H

#include "sheaf/kmem_cache.h"

#define DEBUG_FLAGS                                                                                                  \
    (SLAB_CONSISTENCY_CHECKS | SLAB_RED_ZONE | SLAB_POISON | SLAB_STORE_USER | SLAB_TRACE | SLAB_FAILSLAB)

#define DEBUG_CHECKS (DEBUG_FLAGS & ~SLAB_FAILSLAB) /* a cache with any of these is debugged */

/* The flags of the cache with that name. */
slab_flags_t debug_spec_flags(const char *spec, const char *name);

#endif
