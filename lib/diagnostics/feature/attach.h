/* Which features a new cache gets. */
#ifndef SHEAF_FEATURE_ATTACH_H
#define SHEAF_FEATURE_ATTACH_H

#include "cache/kmem_cache.h"

/* Part of hooks.attach_features: attach debugging, hardening, fault injection and sampling as the options and
 * flags say. */
void feature_attach(struct kmem_cache *cache, struct cache_shape *shape);

#endif
