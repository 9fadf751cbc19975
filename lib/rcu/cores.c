#define _GNU_SOURCE
#include "rcu/rcu.h"

#include <dlfcn.h>
#include <stdlib.h>

const struct sheaf_rcu_core *cores[CORES];
unsigned core_count;

/*
 * Waits before a cache is destroyed. Objects that wait singly do not record their cache, so any of them may belong
 * to it.
 */
static void barrier_on(struct kmem_cache *cache)
{
    if (core_of_cache(cache)->waits(cache) || single_count())
        kvfree_rcu_barrier_on_cache(cache);
}

static void start(void)
{
    worker_start();
}

static void add(const struct sheaf_rcu_core *core)
{
    if (!core || core->size < sizeof(*core) || (core_count && cores[0] == core))
        return;
    cores[core_count++] = core;
    core->attach(worker_kick, barrier_on, start);
}

/*
 * This library is not linked with libsheaf: a program whose malloc is the preloaded object must not load a second
 * allocator. Both may be present nevertheless, each with its own memory: the first in the search order, and
 * libsheaf.
 */
__attribute__((constructor)) static void find_cores(void)
{
    add(dlsym(RTLD_DEFAULT, SHEAF_RCU_CORE_NAME));
    void *libsheaf = dlopen("libsheaf.so.0", RTLD_LAZY | RTLD_NOLOAD);
    if (libsheaf) {
        add(dlsym(libsheaf, SHEAF_RCU_CORE_NAME));
        dlclose(libsheaf);
    }
}

const struct sheaf_rcu_core *core_of(const void *p)
{
    for (unsigned i = 0; i < core_count; i++)
        if (likely(cores[i]->owns(p)))
            return cores[i];
    return NULL;
}

const struct sheaf_rcu_core *core_of_cache(const struct kmem_cache *cache)
{
    for (unsigned i = 0; i < core_count; i++)
        if (cores[i]->owns_cache(cache))
            return cores[i];
    return NULL;
}
