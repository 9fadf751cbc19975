/* Sampled objects of malloc's classes, which lie in the sampled caches of these. */
#ifndef SHEAF_PROFILE_OBJECT_H
#define SHEAF_PROFILE_OBJECT_H

#include "cache/kmem_cache.h"
#include "diagnostics/profile/pace.h"

/* Set up what the classes need, unless that is done. Returns false if there is no memory. */
bool profile_objects_start(void);

/* The pace of large blocks below the rate, on a slot. */
struct pace *profile_pace_of_large(unsigned slot);

/* Draw again where the next sample was drawn already: in the child of a fork. */
void profile_objects_forget(void);

/* Let the objects of a class be sampled from now on, unless something else handles each of them. */
void profile_attach_objects(struct kmem_cache *cache);

#endif
