#include "script/module.h"
#include "os/object.h"

#include <elf.h>
#include <string.h>

const void *script_dynamic(const struct sheaf_profile_module *module)
{
    const ElfW(Ehdr) *header = (const void *)module->start;
    size_t bytes = module->end - module->start;
    if (bytes < sizeof(*header) || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
        header->e_phoff + header->e_phnum * sizeof(ElfW(Phdr)) > bytes)
        return NULL;
    const ElfW(Phdr) *parts = (const void *)(module->start + header->e_phoff);
    for (unsigned i = 0; i < header->e_phnum; i++)
        if (parts[i].p_type == PT_DYNAMIC)
            return (const void *)(module->bias + parts[i].p_vaddr);
    return NULL;
}

uintptr_t script_symbol(const struct sheaf_profile_module *module, const void *dynamic, const char *name,
                        size_t *size)
{
    const ElfW(Sym) *symbol = object_symbol(module->bias, dynamic, name);
    if (symbol && size)
        *size = symbol->st_size;
    return symbol ? module->bias + symbol->st_value : 0;
}
