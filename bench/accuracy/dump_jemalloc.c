/*
 * Preloaded beside jemalloc: accuracy_dump() has its profiler write a profile, named by MALLOC_CONF's prof_prefix. A
 * program that does not call it gets one when it exits.
 */
#include "dump.h"

#include <stddef.h>

__attribute__((weak)) int mallctl(const char *name, void *old, size_t *old_size, void *new, size_t new_size);

static int dumped;

void accuracy_dump(void)
{
    dumped = 1;
    if (mallctl)
        mallctl("prof.dump", NULL, NULL, NULL, 0);
}

__attribute__((destructor)) static void dump_at_exit(void)
{
    if (!dumped)
        accuracy_dump();
}
