/* What an object of the process exports, which may be an interpreter. It must not be unloaded meanwhile. */
#ifndef SHEAF_SCRIPT_MODULE_H
#define SHEAF_SCRIPT_MODULE_H

#include "platform/os/compiler.h"
#include "sheaf/profile.h"

/* The dynamic section of a module; NULL if there is none. */
const void *script_dynamic(const struct sheaf_profile_module *module);

/* The address of a function or variable, and its size unless that is NULL; 0 if the module does not export it. */
uintptr_t script_symbol(const struct sheaf_profile_module *module, const void *dynamic, const char *name,
                        size_t *size);

#endif
