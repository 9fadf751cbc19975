/* The programs and libraries that addresses in stacks belong to. */
#ifndef SHEAF_PROFILE_MODULES_H
#define SHEAF_PROFILE_MODULES_H

#include "platform/os/compiler.h"
#include "sheaf/profile.h"

/* Describe the module that contains the code address. Takes no lock and allocates nothing. Returns false if it is not
 * known: code without a module, or a libc without _dl_find_object() (before 2.35). */
bool module_find(uintptr_t pc, struct sheaf_profile_module *module);

/* Whether the module that contains the code address is still that one. */
bool module_still(uintptr_t pc, const struct sheaf_profile_module *module);

#endif
