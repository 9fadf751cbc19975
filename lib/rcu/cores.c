#define _GNU_SOURCE
#include "rcu/rcu.h"

#include <dlfcn.h>
#include <stdlib.h>

const struct sheaf_rcu_core *cores[CORES];
unsigned core_count;

/* Before a cache is destroyed. Of those that wait by themselves we do not know whose they are. */
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
 * Not linked with libsheaf: a program whose malloc is the preloaded object must not load a second one. Both may be
 * there all the same, each with memory of its own: the first in the order of the search, and libsheaf itself.
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
