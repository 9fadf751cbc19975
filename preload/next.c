/*
 * Looks for other definitions of the functions that this object exports.
 *
 * dlsym(RTLD_NEXT) would find the same, but it takes a lock of the dynamic linker, leaves a message for dlerror(),
 * and allocates where it fails. Here the list of objects is read without a lock. That is safe from its start to libc:
 * these objects were loaded with the program, are never unloaded, and keep their order; libraries that are opened
 * later are put behind them.
 *
 * Only this object knows whether it is in the list of _r_debug. In a namespace of its own (dlmopen() of a library
 * that is linked with libsheaf-malloc) it is not, and dlsym() is used after all.
 */
#define _GNU_SOURCE
#include "preload/next.h"
#include "platform/os/libc.h"
#include "preload/libc.h"
#include "preload/names.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <string.h>

extern const ElfW(Dyn) own_dynamic[] __asm__("_DYNAMIC") hidden;

static const struct link_map *first_map(void)
{
    const struct r_debug *objects = libc_objects();
    return objects ? objects->r_map : NULL;
}

/* This object in the list, or NULL. */
static const struct link_map *internal_map(void)
{
    const struct link_map *map = first_map();
    while (map && map->l_ld != own_dynamic)
        map = map->l_next;
    return map;
}

static bool is_libc(const struct link_map *map)
{
#ifdef __GLIBC__
    const char *name = libc_object_name(map->l_addr, map->l_ld);
    return name && strcmp(name, "libc.so.6") == 0;
#else
    return libc_object_defines(map->l_addr, map->l_ld, "__libc_start_main"); /* musl's has no name */
#endif
}

/* The preloaded object may have libsheaf-malloc behind it, which is no other malloc. */
static bool is_sheaf(const struct link_map *map)
{
    return libc_object_defines(map->l_addr, map->l_ld, "sheaf_rcu_allocator_1");
}

bool next_defined_before(const char *name)
{
    const struct link_map *map = first_map(), *own = internal_map();
    for (; own && map != own; map = map->l_next)
        if (libc_object_defines(map->l_addr, map->l_ld, name))
            return true;
    return !own; /* in another namespace, the address alone tells */
}

/* The first definition behind this object; stores in *in which object has it. */
static uintptr_t next_definition(const char *name, const struct link_map **in)
{
    const struct link_map *map = internal_map();
    *in = NULL;
    if (!map)
        return (uintptr_t)libc_symbol(RTLD_NEXT, name);
    for (bool libc = false; !libc && (map = map->l_next);) {
        libc = is_libc(map);
        uintptr_t function = is_sheaf(map) ? 0 : (uintptr_t)libc_object_function(map->l_addr, map->l_ld, name);
        *in = map;
        if (function)
            return function;
    }
    return 0;
}

uintptr_t next_function(const char *name, uintptr_t *found)
{
    enum { NONE = 1 };
    uintptr_t function = __atomic_load_n(found, __ATOMIC_RELAXED);
    if (!function) {
        const struct link_map *in;
        function = next_definition(name, &in);
        __atomic_store_n(found, function ? function : NONE, __ATOMIC_RELAXED);
    }
    return function == NONE ? 0 : function;
}

bool next_is_another(void)
{
    static enum { UNKNOWN, LIBC, ANOTHER } answer;
    if (__atomic_load_n(&answer, __ATOMIC_RELAXED) == UNKNOWN) {
        const struct link_map *in;
        bool another = next_definition("free", &in) && in && !is_libc(in);
        __atomic_store_n(&answer, another ? ANOTHER : LIBC, __ATOMIC_RELAXED);
    }
    return __atomic_load_n(&answer, __ATOMIC_RELAXED) == ANOTHER;
}

/* ---- the C library's functions have these fallbacks only for form: libc defines all four ---- */

static void *no_malloc(size_t size)
{
    (void)size;
    errno = ENOMEM;
    return NULL;
}

static void *no_calloc(size_t count, size_t size)
{
    (void)count;
    return no_malloc(size);
}

static void *no_realloc(void *p, size_t size)
{
    (void)p;
    return no_malloc(size);
}

static void no_free(void *p)
{
    (void)p;
}

static void *call_malloc(size_t size)
{
    return next_or("malloc", __typeof__(no_malloc), no_malloc)(size);
}

static void *call_calloc(size_t count, size_t size)
{
    return next_or("calloc", __typeof__(no_calloc), no_calloc)(count, size);
}

static void *call_realloc(void *p, size_t size)
{
    return next_or("realloc", __typeof__(no_realloc), no_realloc)(p, size);
}

static void call_free(void *p)
{
    next_or("free", __typeof__(no_free), no_free)(p);
}

const struct other_malloc next_malloc = {
    .malloc = call_malloc, .calloc = call_calloc, .realloc = call_realloc, .free = call_free};
