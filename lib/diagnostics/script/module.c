#define _GNU_SOURCE
#include "diagnostics/script/module.h"
#include "platform/os/object.h"

#include <dlfcn.h>

#ifdef DLFO_STRUCT_HAS_EH_DBASE
#pragma weak _dl_find_object

/* The loader knows it. The headers may lie in another part: a program with gaps is found by its parts. */
const void *script_dynamic(const struct sheaf_profile_module *module)
{
    struct dl_find_object found;
    if (!&_dl_find_object || _dl_find_object((void *)module->start, &found) != 0 || !found.dlfo_link_map)
        return NULL;
    return found.dlfo_link_map->l_ld;
}
#else
const void *script_dynamic(const struct sheaf_profile_module *module)
{
    (void)module;
    return NULL;
}
#endif

uintptr_t script_symbol(const struct sheaf_profile_module *module, const void *dynamic, const char *name,
                        size_t *size)
{
    const ElfW(Sym) *symbol = object_symbol(module->bias, dynamic, name);
    if (symbol && size)
        *size = symbol->st_size;
    return symbol ? module->bias + symbol->st_value : 0;
}
