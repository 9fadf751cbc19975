#define _GNU_SOURCE
#include "platform/os/object.h"

#include <string.h>

static uintptr_t distance(uintptr_t a, uintptr_t b)
{
    return a < b ? b - a : a - b;
}

/*
 * The dynamic linker replaces offsets in the dynamic section by addresses, but not where that section is read-only:
 * in the vDSO, and with musl everywhere. An object may be linked to any base (gVisor's vDSO: to the end of the
 * address space), so neither kind is always the smaller one. But all of an object lies close to its dynamic section.
 */
const void *object_address(uintptr_t base, const void *dynamic, uintptr_t value)
{
    uintptr_t near = (uintptr_t)dynamic, added = base + value;
    return (const void *)(distance(added, near) < distance(value, near) ? added : value);
}

static uint32_t gnu_hash(const char *name)
{
    uint32_t hash = 5381;
    for (; *name; name++)
        hash = hash * 33 + (unsigned char)*name;
    return hash;
}

/* The tables of an object that lead from the name of a symbol to the symbol. */
struct symbol_tables {
    const ElfW(Sym) * symbols;
    const char *names;
    const uint32_t *gnu, *sysv; /* DT_GNU_HASH and DT_HASH; a linker may leave out either */
    const char *object;         /* DT_SONAME */
};

static struct symbol_tables tables_of(uintptr_t base, const void *section)
{
    struct symbol_tables tables = {.symbols = NULL};
    uintptr_t object = 0;
    for (const ElfW(Dyn) *dynamic = section; dynamic->d_tag != DT_NULL; dynamic++)
        if (dynamic->d_tag == DT_SYMTAB)
            tables.symbols = object_address(base, section, dynamic->d_un.d_ptr);
        else if (dynamic->d_tag == DT_STRTAB)
            tables.names = object_address(base, section, dynamic->d_un.d_ptr);
        else if (dynamic->d_tag == DT_GNU_HASH)
            tables.gnu = object_address(base, section, dynamic->d_un.d_ptr);
        else if (dynamic->d_tag == DT_HASH)
            tables.sysv = object_address(base, section, dynamic->d_un.d_ptr);
        else if (dynamic->d_tag == DT_SONAME)
            object = dynamic->d_un.d_val;
    tables.object = object && tables.names ? tables.names + object : NULL;
    return tables;
}

static bool is_definition(const struct symbol_tables *tables, uint32_t i, const char *name)
{
    const ElfW(Sym) *symbol = &tables->symbols[i];
    return symbol->st_shndx != SHN_UNDEF && strcmp(tables->names + symbol->st_name, name) == 0;
}

/* The definition of that name, or NULL. */
static const ElfW(Sym) * find_symbol(const struct symbol_tables *tables, const char *name)
{
    if (!tables->symbols || !tables->names)
        return NULL;
    if (!tables->gnu) { /* DT_HASH: its second word is the number of symbols */
        for (uint32_t i = 1; tables->sysv && i < tables->sysv[1]; i++)
            if (is_definition(tables, i, name))
                return &tables->symbols[i];
        return NULL;
    }
    const uint32_t *table = tables->gnu;
    uint32_t buckets = table[0], first = table[1], hash = gnu_hash(name);
    const uint32_t *bucket = table + 4 + table[2] * (sizeof(ElfW(Addr)) / sizeof(*table)), *chain = bucket + buckets;
    uint32_t i = buckets ? bucket[hash % buckets] : 0;
    for (; i >= first && i; i++) {
        if ((chain[i - first] | 1) == (hash | 1) && is_definition(tables, i, name))
            return &tables->symbols[i];
        if (chain[i - first] & 1)
            break;
    }
    return NULL;
}

const ElfW(Sym) * object_symbol(uintptr_t address, const void *dynamic, const char *name)
{
    struct symbol_tables tables = tables_of(address, dynamic);
    return find_symbol(&tables, name);
}

/* One more than the index of the last symbol. DT_GNU_HASH has no such number: its last chain ends at the last symbol.
 */
static uint32_t symbol_count(const struct symbol_tables *tables)
{
    if (tables->sysv)
        return tables->sysv[1];
    if (!tables->gnu)
        return 0;
    const uint32_t *table = tables->gnu;
    uint32_t buckets = table[0], first = table[1], last = 0;
    const uint32_t *bucket = table + 4 + table[2] * (sizeof(ElfW(Addr)) / sizeof(*table)), *chain = bucket + buckets;
    for (uint32_t i = 0; i < buckets; i++)
        last = bucket[i] > last ? bucket[i] : last;
    if (last < first || !last)
        return first;
    while (!(chain[last - first] & 1))
        last++;
    return last + 1;
}

const ElfW(Sym) * object_symbol_at(uintptr_t address, const void *dynamic, uintptr_t pc, const char **name)
{
    struct symbol_tables tables = tables_of(address, dynamic);
    const ElfW(Sym) *found = NULL;
    *name = NULL;
    uint32_t n = tables.symbols && tables.names ? symbol_count(&tables) : 0;
    for (uint32_t i = 1; i < n; i++) {
        const ElfW(Sym) *symbol = &tables.symbols[i];
        if (symbol->st_shndx != SHN_UNDEF && ELF64_ST_TYPE(symbol->st_info) == STT_FUNC &&
            pc - address - symbol->st_value < symbol->st_size && (!found || symbol->st_value > found->st_value))
            found = symbol;
    }
    *name = found ? tables.names + found->st_name : NULL;
    return found;
}

const char *object_name(uintptr_t address, const void *dynamic)
{
    return tables_of(address, dynamic).object;
}
