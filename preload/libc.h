/* Substitutes for what older versions of glibc lack (lib/os/libc.h). */
#ifndef SHEAF_PRELOAD_LIBC_H
#define SHEAF_PRELOAD_LIBC_H

/*
 * dlsym(where, name) for functions, where `where` is RTLD_DEFAULT or RTLD_NEXT, in any program. Takes a lock of the
 * dynamic linker: not for signal handlers.
 */
void *libc_symbol(void *where, const char *name);

/* To be called in the child of a fork. */
void libc_fork_child(void);

#endif
