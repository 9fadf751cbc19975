/* The unwind tables of an address with glibc before 2.35, which has no _dl_find_object() (preload/libc.c). */
#ifndef SHEAF_OS_UNWIND_H
#define SHEAF_OS_UNWIND_H

#include "platform/os/libc.h"

/* Describe the object of an address. Returns 0, or -1 if there is none. Calls dl_iterate_phdr(), which takes a lock.
 */
int unwind_find(void *pc, struct dl_find_object *result);

#endif
