/*
 * The symbols that an ELF object defines for others, read without the dynamic linker, which would take a lock. An
 * object is given by its address (l_addr) and its dynamic section, and must not be unloaded meanwhile. Any context.
 */
#ifndef SHEAF_OS_OBJECT_H
#define SHEAF_OS_OBJECT_H

#include "platform/os/compiler.h"

#include <link.h>

/* The address in memory that an entry of the dynamic section stands for, which may have been relocated or not. */
const void *object_address(uintptr_t base, const void *dynamic, uintptr_t value);

/* The definition of that name, in any version, or NULL. Its address in memory is `address` + st_value. */
const ElfW(Sym) * object_symbol(uintptr_t address, const void *dynamic, const char *name);

/*
 * The function that contains an address, or NULL. Stores its name in *name, or NULL. Slow: it reads all symbols.
 */
const ElfW(Sym) * object_symbol_at(uintptr_t address, const void *dynamic, uintptr_t pc, const char **name);

/* The name of the object (DT_SONAME), or NULL. */
const char *object_name(uintptr_t address, const void *dynamic);

#endif
