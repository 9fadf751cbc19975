/* Functions shared by those of sheaf/kmem_cache.h. */
#ifndef SHEAF_KMEM_OBJECT_H
#define SHEAF_KMEM_OBJECT_H

#include "cache/kmem_cache.h"

/* Count a failed allocation. Returns NULL, with errno set to ENOMEM. */
void *kmem_alloc_failed(struct kmem_cache *cache);

/* Returns the user's object for a raw one, through the cache's instruments if it has any; NULL for NULL. */
void *kmem_present(struct kmem_cache *cache, void *raw);

#endif
