#define _GNU_SOURCE
#include "diagnostics/script/tls.h"
#include "platform/arch/arch.h"
#include "platform/os/object.h"

#include <string.h>
#include <sys/auxv.h>

#if defined(ARCH_R_DTPMOD) && defined(ARCH_R_TPOFF)

#define MODULE_MOST 65536 /* a larger number is none */

/* The relocations of an object, and its names of symbols. */
struct relocations {
    const ElfW(Rela) * first;
    size_t n;
    const ElfW(Sym) * symbols;
    const char *names;
};

static struct relocations relocations_of(uintptr_t base, const void *section)
{
    struct relocations found = {.n = 0};
    for (const ElfW(Dyn) *dynamic = section; dynamic->d_tag != DT_NULL; dynamic++) {
        const void *at = object_address(base, section, dynamic->d_un.d_ptr);
        if (dynamic->d_tag == DT_RELA)
            found.first = at;
        else if (dynamic->d_tag == DT_RELASZ)
            found.n = dynamic->d_un.d_val / sizeof(ElfW(Rela));
        else if (dynamic->d_tag == DT_SYMTAB)
            found.symbols = at;
        else if (dynamic->d_tag == DT_STRTAB)
            found.names = at;
    }
    return found;
}

/* The program's own variables lie right below the thread pointer. */
static bool in_program(uintptr_t dynamic, uintptr_t offset, struct tls_variable *found)
{
    const ElfW(Phdr) *parts = (const void *)getauxval(AT_PHDR); // NOLINT(performance-no-int-to-ptr)
    uintptr_t bias = 0, block = 0;
    bool known = false;
    for (size_t i = 0; parts && i < getauxval(AT_PHNUM); i++)
        if (parts[i].p_type == PT_PHDR)
            bias = (uintptr_t)parts - parts[i].p_vaddr;
    for (size_t i = 0; parts && i < getauxval(AT_PHNUM); i++)
        if (parts[i].p_type == PT_DYNAMIC)
            known = bias + parts[i].p_vaddr == dynamic;
        else if (parts[i].p_type == PT_TLS)
            block = round_up(parts[i].p_memsz, parts[i].p_align ? parts[i].p_align : 1);
    *found = (struct tls_variable){.offset = offset - block};
    return known && block;
}

bool tls_find(uintptr_t address, const void *dynamic, const char *name, struct tls_variable *found)
{
    const ElfW(Sym) *symbol = object_symbol(address, dynamic, name);
    if (!symbol || ELF64_ST_TYPE(symbol->st_info) != STT_TLS)
        return false;
    struct relocations all = relocations_of(address, dynamic);
    for (size_t i = 0; all.first && all.symbols && all.names && i < all.n; i++) {
        unsigned type = (unsigned)ELF64_R_TYPE(all.first[i].r_info);
        if ((type != ARCH_R_DTPMOD && type != ARCH_R_TPOFF) ||
            strcmp(all.names + all.symbols[ELF64_R_SYM(all.first[i].r_info)].st_name, name) != 0)
            continue;
        uintptr_t value = *(const uintptr_t *)(address + all.first[i].r_offset);
        bool module = type == ARCH_R_DTPMOD;
        *found = (struct tls_variable){.module = module ? value : 0, .offset = module ? symbol->st_value : value};
        return !module || (value && value < MODULE_MOST);
    }
    return in_program((uintptr_t)dynamic, symbol->st_value, found);
}

/*
 * A thread's second word is the address of its table (the dtv). glibc's has two words for each object: the first one
 * is the address of the object's variables, or NULL or not aligned if the thread has none. In front of the table lies
 * the number of objects that it has room for. musl's has one word for each object, and begins with their number.
 */
#ifdef __GLIBC__
#define TABLE_MOST(table) ((table)[-2])
#define TABLE_WORDS       2
#else
#define TABLE_MOST(table) ((table)[0])
#define TABLE_WORDS       1
#endif

uintptr_t tls_word(const struct tls_variable *variable)
{
    const uintptr_t *block = __builtin_thread_pointer();
    if (variable->module) {
        const uintptr_t *table = (const uintptr_t *)block[1];
        if (variable->module > TABLE_MOST(table))
            return 0;
        block = (const uintptr_t *)table[TABLE_WORDS * variable->module];
    }
    return !block || (uintptr_t)block % sizeof(*block) ? 0
                                                       : *(const uintptr_t *)((uintptr_t)block + variable->offset);
}

#else

bool tls_find(uintptr_t address, const void *dynamic, const char *name, struct tls_variable *found)
{
    (void)address, (void)dynamic, (void)name, (void)found;
    return false;
}

uintptr_t tls_word(const struct tls_variable *variable)
{
    (void)variable;
    return 0;
}

#endif
