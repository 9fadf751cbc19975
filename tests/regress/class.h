/* The cache of a size class. For programs that include internal headers. */
#ifndef SHEAF_TESTS_REGRESS_CLASS_H
#define SHEAF_TESTS_REGRESS_CLASS_H

#include "cache/kmem_cache.h"
#include "sheaf/malloc.h"

/* Sets the class up if it is not in use. */
static struct kmem_cache *class_of_size(size_t size)
{
    sheaf_free(sheaf_malloc(size));
    unsigned number = CACHE_FIRST;
    while (!cache_in_use(cache_at(number)) || cache_at(number)->object_size < size)
        number++;
    return cache_at(number);
}

#endif
