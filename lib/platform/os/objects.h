/*
 * The loaded objects in a table, for musl, whose dl_iterate_phdr() and dladdr() take the dynamic linker's lock.
 *
 * musl never unloads an object, so what the table has stays true, and it is searched without a lock in any context.
 * dlopen() is the only thing that adds objects; preload/dlopen.c updates the table after each call. What is not in
 * the table yet may still be removed from the linker's list, if dlopen() fails: such objects are read by copies that
 * cannot fault (peek.h). Their constructors run before dlopen() returns, and allocate.
 */
#ifndef SHEAF_OS_OBJECTS_H
#define SHEAF_OS_OBJECTS_H

#include "platform/os/compiler.h"
#include "platform/os/libc.h"

#ifndef __GLIBC__

/*
 * Adds what is missing to the table. Takes the dynamic linker's lock, so it must not be called by a signal handler
 * that may have interrupted dlopen(), unless it is the first call and nothing was opened yet.
 */
hidden void objects_update(void);

/* The same if the table is empty. To be called before dlopen(). */
hidden void objects_prepare(void);

/* To be called in the child of a fork: the thread that updated the table may be missing there. */
hidden void objects_fork_child(void);

/* Describes the object of an address. Returns 0, or -1 if there is none or it has no unwind tables. Any context. */
hidden int objects_find(void *pc, struct dl_find_object *result);

/* The same for objects without unwind tables. */
hidden bool objects_find_any(uintptr_t pc, struct dl_find_object *result);

#endif
#endif
