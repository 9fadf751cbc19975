/* Sampled objects of malloc's classes, which lie in the twins of these. */
#ifndef SHEAF_PROFILE_OBJECT_H
#define SHEAF_PROFILE_OBJECT_H

#include "cache/kmem_cache.h"

/* Let the objects of a class be sampled from now on, unless something else handles each of them. */
void profile_attach_objects(struct kmem_cache *cache);

#endif
