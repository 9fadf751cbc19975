/* Substitutes for functions that older versions of glibc lack (lib/platform/os/libc.h). */
#define _GNU_SOURCE
#include "preload/libc.h"
#include "platform/os/libc.h"
#include "platform/os/object.h"
#include "platform/os/objects.h"
#include "platform/os/unwind.h"
#include "memory/space/locks.h"

#include <dlfcn.h>
#include <link.h>
#ifdef __GLIBC__
#include <gnu/libc-version.h>
#endif

#ifdef __GLIBC__

/* ---- the unwinder's way to the tables of an address ---- */

/*
 * libgcc's unwinder finds the unwind tables of an address by _dl_find_object(), which takes no lock. glibc has that
 * function from 2.35 on. `--wrap` in meson.build directs the calls of libgcc and of Sheaf to __wrap__dl_find_object()
 * below, and makes __real__dl_find_object the name of libc's function.
 *
 * With an older glibc, dl_iterate_phdr() lists the objects, as libgcc itself did before 2.35. It takes the dynamic
 * linker's lock of the list of objects (dl_load_write_lock). That lock is recursive. libc holds it while it links an
 * object into the list or removes one, without allocating, and while dl_iterate_phdr() runs its callbacks, which may
 * allocate. Stacks are walked only for SHEAF_DEBUG, SHEAF_HARDEN=sample and profiles.
 *
 * Locks: a walk starts with no lock of Sheaf's held, except that of remote drains, during a report, and those whose
 * holder a signal handler interrupted. Another thread may wait for such a lock in a callback of dl_iterate_phdr(). So
 * find_object() finds nothing while the thread holds one of the enumeration in memory/space/locks.h, and the stack
 * ends.
 *
 * Signal handlers: a handler may have interrupted the holder of the list's lock. It can take the recursive lock
 * again, and every store to the list leaves it readable. unwind_find() blocks signals. Two cases remain in which a
 * handler that allocates waits forever. It interrupted a call of the program's between taking the mutex and writing
 * its owner, where an exception in the handler would wait as well; or it interrupted the holder of a cache's lock,
 * for which another thread waits in a callback.
 *
 * Fork: older versions of glibc do not reset the lock in the child, and a thread that only the parent has may have
 * held it. So find_object() finds nothing in the child of a fork.
 *
 * In these cases this object alone is found, by its own headers: libgcc aborts if it does not find the tables of its
 * own code, which is in here. The walk ends behind the frames of this object.
 */
extern int find_in_libc(void *pc, struct dl_find_object *result) __asm__("__real__dl_find_object")
    __attribute__((weak));
hidden int find_object(void *pc, struct dl_find_object *result) __asm__("__wrap__dl_find_object");

extern hidden const ElfW(Ehdr) __ehdr_start; /* by the linker */
static bool forked;                          /* this process is the child of a fork */

void libc_fork_child(void)
{
    if (!find_in_libc && !forked) /* or its page would be copied */
        forked = true;
}

/* Returns 0, or -1 if no object is at that address or if the lock must not be taken (above). Any context. */
__attribute__((used)) int find_object(void *pc, struct dl_find_object *result)
{
    if (likely(find_in_libc != NULL))
        return find_in_libc(pc, result);
    bool locked = false;
    for (unsigned number = 0; number < LOCK_FORKER; number++)
        locked |= lock_held_by_self(lock_of(number));
    return forked || locked ? unwind_find_here(&__ehdr_start, pc, result) : unwind_find(pc, result);
}

#else

static char forked; /* an address of this object */

void libc_fork_child(void)
{
    objects_fork_child();
}

#endif

/* ---- dlsym() without libdl ---- */

struct symbol_search {
    const char *name;
    uintptr_t after; /* an address in the object behind which the search starts; 0: search all */
    void *found;
};

void *libc_object_function(uintptr_t address, const void *dynamic, const char *name)
{
    const ElfW(Sym) *symbol = object_symbol(address, dynamic, name);
    return symbol && ELF64_ST_TYPE(symbol->st_info) == STT_FUNC ? (void *)(address + symbol->st_value) : NULL;
}

bool libc_object_defines(uintptr_t address, const void *dynamic, const char *name)
{
    return object_symbol(address, dynamic, name) != NULL;
}

const char *libc_object_name(uintptr_t address, const void *dynamic)
{
    return object_name(address, dynamic);
}

static int symbol_in(struct dl_phdr_info *info, size_t size, void *with)
{
    (void)size;
    struct symbol_search *search = with;
    const ElfW(Dyn) *dynamic = NULL;
    bool last_skipped = false;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        uintptr_t at = info->dlpi_addr + segment->p_vaddr;
        if (segment->p_type == PT_DYNAMIC)
            dynamic = (const ElfW(Dyn) *)at;
        last_skipped |= segment->p_type == PT_LOAD && search->after - at < segment->p_memsz;
    }
    if (!search->after && dynamic)
        search->found = libc_object_function(info->dlpi_addr, dynamic, search->name);
    if (last_skipped)
        search->after = 0;
    return search->found != NULL;
}

/*
 * glibc before 2.34 has dlsym() in libdl. In a program that does not load libdl, the objects are searched in the
 * order in which they were loaded. Unlike dlsym() this finds functions of libraries opened with RTLD_LOCAL too, which
 * are behind all others.
 */
void *libc_symbol(void *where, const char *name)
{
    if (libc_has(dlsym))
        return dlsym(where, name);
    struct symbol_search search = {.name = name, .after = where == RTLD_NEXT ? (uintptr_t)&forked : 0};
    dl_iterate_phdr(symbol_in, &search);
    return search.found;
}

/* ---- functions of libc that other objects may define, too ---- */

__typeof__(pthread_create) *libc_thread_create(void)
{
#ifdef __GLIBC__
    union {
        void *symbol;
        __typeof__(pthread_create) *call;
    } own = {.symbol = NULL};
    struct dl_find_object libc;
    if (find_in_libc && find_in_libc((void *)(uintptr_t)gnu_get_libc_version, &libc) == 0 && libc.dlfo_link_map)
        own.symbol = libc_object_function(libc.dlfo_link_map->l_addr, libc.dlfo_link_map->l_ld, "pthread_create");
    return own.symbol ? own.call : pthread_create; /* weak */
#else
    return pthread_create;
#endif
}
