/* Which features a new cache gets. */
#ifndef SHEAF_FEATURE_ATTACH_H
#define SHEAF_FEATURE_ATTACH_H

#include "cache/kmem_cache.h"

/* For hooks.attach_features: debugging, hardening, failure injection and sampling, by the options and flags. */
void feature_attach(struct kmem_cache *cache, struct cache_shape *shape);

#endif
