/* A function of an interpreted program, as it stands in stacks. */
#ifndef SHEAF_SCRIPT_NAME_H
#define SHEAF_SCRIPT_NAME_H

#include "platform/os/compiler.h"

#include <stdint.h>

/* A function and its file in UTF-8, truncated if they are long. */
struct script_name {
    const char *function, *file;
    uint16_t function_bytes, file_bytes;
};

/* Returns the address that stands for a line of the function; 0 if it cannot be had now. */
typedef uintptr_t script_address(const struct script_name *name, uint32_t line);

#endif
