/* Substitutes for what older versions of glibc lack (lib/platform/os/libc.h). */
#ifndef SHEAF_PRELOAD_LIBC_H
#define SHEAF_PRELOAD_LIBC_H

#include "platform/os/compiler.h"

#include <pthread.h>
#include <stddef.h>
#include <sys/types.h>

/* What Sheaf defines and headers of older versions do not declare. */
#ifdef __GLIBC__
#if !__GLIBC_PREREQ(2, 33)
struct mallinfo2 {
    size_t arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};
struct mallinfo2 mallinfo2(void);
#endif
#if !__GLIBC_PREREQ(2, 34)
pid_t _Fork(void);
#endif
#endif

/*
 * dlsym(where, name) for functions, where `where` is RTLD_DEFAULT or RTLD_NEXT, in any program. Takes a lock of the
 * dynamic linker: not for signal handlers.
 */
void *libc_symbol(void *where, const char *name);

/*
 * The function of that name that an object defines, in any version; its name (DT_SONAME), or NULL. An object is given
 * by its address and its dynamic section, and must not be unloaded meanwhile. Any context.
 */
void *libc_object_function(uintptr_t address, const void *dynamic, const char *name);
bool libc_object_defines(uintptr_t address, const void *dynamic, const char *name);
const char *libc_object_name(uintptr_t address, const void *dynamic);

/*
 * Returns libc's pthread_create(), even if another object defines one, or NULL if the program has none. An object
 * that was preloaded may define one that takes a lock under which that object allocates, and Sheaf starts its thread
 * in malloc(). Takes no lock with glibc 2.35 and later; with an older one the program's is returned.
 */
__typeof__(pthread_create) *libc_thread_create(void);

/* To be called in the child of a fork. */
void libc_fork_child(void);

#endif
