#define _GNU_SOURCE
#include "diagnostics/profile/modules.h"
#include "platform/os/libc.h"
#include "platform/os/syscall.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <sys/auxv.h>

/* Whether the dynamic linker was executed, and loaded the program itself (`ld.so PROGRAM`). */
static bool linker_was_executed(void)
{
#ifndef __GLIBC__ /* there AT_PHDR is the linker's */
    return !getauxval(AT_BASE) && libc_objects();
#endif
    const ElfW(Phdr) *parts = (const void *)getauxval(AT_PHDR);
    for (unsigned long i = 0; parts && !getauxval(AT_BASE) && i < getauxval(AT_PHNUM); i++)
        if (parts[i].p_type == PT_INTERP) /* not a static program, which has no base either */
            return true;
    return false;
}

/* Keeps the end of a path that is too long. */
static void copy_path(char *to, size_t size, const char *path)
{
    size_t length = strlen(path);
    memcpy(to, length < size ? path : path + length - size + 1, length < size ? length : size - 1);
    to[length < size ? length : size - 1] = 0;
}

/* Returns the length of what the link leads to, 0 if that is not known. */
static size_t read_link(const char *link, char *path, size_t size)
{
    long n = sys_call(SYS_readlinkat, AT_FDCWD, (long)link, (long)path, (long)size - 1, 0, 0);
    path[n > 0 ? n : 0] = 0;
    return n > 0 ? (size_t)n : 0;
}

/* The path of the program, which the dynamic linker does not know. */
static void program_path(char *path, size_t size)
{
    const char *name = libc_program();
    if (!name || !linker_was_executed()) {
        read_link("/proc/self/exe", path, size);
        return;
    }
    size_t n = *name == '/' ? 0 : read_link("/proc/self/cwd", path, size); /* unless the program has left it */
    if (n && n + 1 < size)
        path[n++] = '/';
    copy_path(path + n, size - n, name);
}

static void read_notes(struct sheaf_profile_module *module, const char *at, const char *end)
{
    while (at + sizeof(ElfW(Nhdr)) <= end) {
        const ElfW(Nhdr) *note = (const void *)at;
        const char *name = at + sizeof(*note), *text = name + round_up(note->n_namesz, 4);
        if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && !memcmp(name, "GNU", 4) &&
            note->n_descsz <= sizeof(module->build_id) && text + note->n_descsz <= end) {
            memcpy(module->build_id, text, note->n_descsz);
            module->build_id_bytes = note->n_descsz;
            return;
        }
        at = text + round_up(note->n_descsz, 4);
    }
}

/* The ELF header and the notes are mapped with the first segment of nearly every object. */
static void read_build_id(struct sheaf_profile_module *module)
{
    const ElfW(Ehdr) *header = (const void *)module->start;
    size_t bytes = module->end - module->start;
    if (bytes < sizeof(*header) || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
        header->e_phoff + header->e_phnum * sizeof(ElfW(Phdr)) > bytes)
        return;
    const ElfW(Phdr) *parts = (const void *)(module->start + header->e_phoff);
    for (unsigned i = 0; i < header->e_phnum && !module->build_id_bytes; i++) {
        uintptr_t at = module->bias + parts[i].p_vaddr;
        if (parts[i].p_type == PT_NOTE && at >= module->start && parts[i].p_memsz <= bytes &&
            at - module->start <= bytes - parts[i].p_memsz)
            read_notes(module, (const char *)at, (const char *)at + parts[i].p_memsz);
    }
}

/* Describes all but the path. */
static bool find(uintptr_t pc, struct sheaf_profile_module *module, struct dl_find_object *found)
{
    if (!libc_has_find_object() || _dl_find_object((void *)pc, found) != 0 || !found->dlfo_link_map)
        return false;
    module->start = (uintptr_t)found->dlfo_map_start;
    module->end = (uintptr_t)found->dlfo_map_end;
    module->bias = found->dlfo_link_map->l_addr;
    module->build_id_bytes = 0;
    read_build_id(module);
    return true;
}

bool module_still(uintptr_t pc, const struct sheaf_profile_module *module)
{
    struct dl_find_object found;
    struct sheaf_profile_module now;
    return find(pc, &now, &found) && now.start == module->start && now.end == module->end &&
           now.build_id_bytes == module->build_id_bytes &&
           !memcmp(now.build_id, module->build_id, now.build_id_bytes);
}

bool module_find(uintptr_t pc, struct sheaf_profile_module *module)
{
    struct dl_find_object found;
    *module = (struct sheaf_profile_module){.path = ""};
    if (!find(pc, module, &found))
        return false;
    if (libc_is_program(found.dlfo_link_map))
        program_path(module->path, sizeof(module->path));
    else
        copy_path(module->path, sizeof(module->path), found.dlfo_link_map->l_name);
    return true;
}
