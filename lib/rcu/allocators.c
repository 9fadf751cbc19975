#define _GNU_SOURCE
#include "rcu/rcu.h"

#include <dlfcn.h>
#include <stdlib.h>

const struct sheaf_rcu_allocator *allocators[ALLOCATORS];
unsigned allocator_count;

static void add(const struct sheaf_rcu_allocator *allocator)
{
    if (!allocator || allocator->size < sizeof(*allocator) || (allocator_count && allocators[0] == allocator))
        return;
    allocators[allocator_count++] = allocator;
}

/*
 * This library is not linked with libsheaf: a program whose malloc is the preloaded object must not load a second
 * allocator. Both may be present nevertheless, each with its own memory: the first in the search order, and
 * libsheaf.
 */
void allocators_find(void)
{
    add(dlsym(RTLD_DEFAULT, SHEAF_RCU_ALLOCATOR_NAME));
    void *libsheaf = dlopen("libsheaf.so." SHEAF_SOVERSION, RTLD_LAZY | RTLD_NOLOAD);
    if (libsheaf) {
        add(dlsym(libsheaf, SHEAF_RCU_ALLOCATOR_NAME));
        dlclose(libsheaf);
    }
}

const struct sheaf_rcu_allocator *allocator_of(const void *p)
{
    for (unsigned i = 0; i < allocator_count; i++)
        if (likely(allocators[i]->owns(p)))
            return allocators[i];
    return NULL;
}

const struct sheaf_rcu_allocator *allocator_of_cache(const struct kmem_cache *cache)
{
    for (unsigned i = 0; i < allocator_count; i++)
        if (allocators[i]->owns_cache(cache))
            return allocators[i];
    return NULL;
}
