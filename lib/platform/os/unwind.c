#define _GNU_SOURCE
#include "platform/os/unwind.h"

#ifdef __GLIBC__

#include "platform/os/compiler.h"
#include "platform/os/syscall.h"

#include <signal.h>
#include <string.h>

struct object_search {
    uintptr_t pc;
    struct dl_find_object *result;
};

/*
 * The link_map of an object. To be called by callbacks of dl_iterate_phdr(), which hold the lock of the list. libc
 * copies dlpi_name from l_name, so equal pointers identify the object.
 */
static struct link_map *link_map_of(const struct dl_phdr_info *info)
{
    const struct r_debug *objects = libc_objects();
    struct link_map *map = objects ? objects->r_map : NULL;
    while (map && (map->l_addr != info->dlpi_addr || map->l_name != info->dlpi_name))
        map = map->l_next;
    return map;
}

/* Returns 0, or -1 if the object has no tables, or 1 if it does not hold the address. Without the link_map. */
static int describe(const struct dl_phdr_info *info, uintptr_t pc, struct dl_find_object *result)
{
    uintptr_t lowest = UINTPTR_MAX, end = 0;
    const void *tables = NULL;
    bool here = false;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        uintptr_t at = info->dlpi_addr + segment->p_vaddr;
        if (segment->p_type == PT_GNU_EH_FRAME)
            tables = (const void *)at;
        if (segment->p_type != PT_LOAD)
            continue;
        here |= pc - at < segment->p_memsz;
        lowest = at < lowest ? at : lowest;
        end = at + segment->p_memsz > end ? at + segment->p_memsz : end;
    }
    *result = (struct dl_find_object){
        .dlfo_map_start = (void *)lowest, .dlfo_map_end = (void *)end, .dlfo_eh_frame = (void *)tables};
    return !here ? 1 : tables ? 0 : -1;
}

static int object_at(struct dl_phdr_info *info, size_t size, void *with)
{
    (void)size;
    struct object_search *search = with;
    int found = describe(info, search->pc, search->result);
    if (found > 0)
        return 0;
    search->result->dlfo_link_map = link_map_of(info);
    return found == 0 ? 1 : -1;
}

/*
 * No signal handler runs meanwhile: one that allocates would look for tables, too, and would wait for ever if it had
 * interrupted libc between taking the recursive lock and writing its owner.
 */
int unwind_find(void *pc, struct dl_find_object *result)
{
    struct object_search search = {.pc = (uintptr_t)pc, .result = result};
    uint64_t all = ~0ull, mask = 0;
    sys_call(SYS_rt_sigprocmask, SIG_SETMASK, (long)&all, (long)&mask, sizeof(mask), 0, 0);
    int found = dl_iterate_phdr(object_at, &search);
    sys_call(SYS_rt_sigprocmask, SIG_SETMASK, (long)&mask, 0, sizeof(mask), 0, 0);
    return found == 1 ? 0 : -1;
}

int unwind_find_here(const ElfW(Ehdr) * header, void *pc, struct dl_find_object *result)
{
    struct dl_phdr_info info = {.dlpi_addr = (uintptr_t)header,
                                .dlpi_phdr = (const void *)((const char *)header + header->e_phoff),
                                .dlpi_phnum = header->e_phnum};
    return describe(&info, (uintptr_t)pc, result) == 0 ? 0 : -1;
}

#endif
