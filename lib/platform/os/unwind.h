/*
 * The unwind tables of an address, for C libraries without glibc's _dl_find_object(), which is of 2.35. What libgcc's
 * unwinder calls by that name is preload/libc.c's function with glibc, and that of unwind.c with musl.
 */
#ifndef SHEAF_OS_UNWIND_H
#define SHEAF_OS_UNWIND_H

#include "platform/os/libc.h"

/*
 * Describe the object of an address. Returns 0, or -1 if there is none. Calls dl_iterate_phdr(), which takes a lock:
 * with musl one that is never held while something is allocated.
 */
int unwind_find(void *pc, struct dl_find_object *result);

/*
 * The same if the address lies in the object with this header, without its link_map. Any context. The object's first
 * segment begins with the header.
 */
int unwind_find_here(const ElfW(Ehdr) * header, void *pc, struct dl_find_object *result);

#endif
