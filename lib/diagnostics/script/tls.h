/*
 * Thread-local variables of other objects, found without the dynamic linker, whose functions may allocate. Where the
 * object lies tells libc's table of a thread, or the offset that the linker has put in. Any context.
 */
#ifndef SHEAF_SCRIPT_TLS_H
#define SHEAF_SCRIPT_TLS_H

#include "platform/os/compiler.h"

/* `module` is the object's number in the threads' tables, or 0: `offset` is from the thread pointer. */
struct tls_variable {
    size_t module;
    uintptr_t offset;
};

/* Find a variable that an object defines and uses; the object is given as in platform/os/object.h. Returns false if
 * there is none, or if its place cannot be told. */
bool tls_find(uintptr_t address, const void *dynamic, const char *name, struct tls_variable *found);

/* The word in the calling thread's variable; 0 if the thread has none. The object must still be loaded. */
uintptr_t tls_word(const struct tls_variable *variable);

#endif
