/* The unwind tables of an address with glibc before 2.35, which has no _dl_find_object() (preload/libc.c). */
#ifndef SHEAF_OS_UNWIND_H
#define SHEAF_OS_UNWIND_H

#include "platform/os/libc.h"

/* Describe the object of an address. Returns 0, or -1 if there is none. Calls dl_iterate_phdr(), which takes a lock.
 */
int unwind_find(void *pc, struct dl_find_object *result);

/*
 * The same if the address lies in the object with this header, without its link_map. Any context. The object's first
 * segment begins with the header.
 */
int unwind_find_here(const ElfW(Ehdr) * header, void *pc, struct dl_find_object *result);

#endif
