/* Entry points that the installed headers may not declare: looked up as any program's dlsym would. */
#ifndef SYMBOL_H
#define SYMBOL_H

#include "case.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

static inline void *symbol_address(const char *name)
{
    void *address = dlsym(RTLD_DEFAULT, name);
    checkf(address != NULL, "%s is not exported", name);
    return address;
}

/* Usage: SYMBOL(void, free_sized, void *, size_t); then free_sized_(p, n). */
#define SYMBOL(result, name, ...)                                                                                     \
    result (*name##_)(__VA_ARGS__);                                                                                   \
    do {                                                                                                              \
        void *address_ = symbol_address(#name);                                                                       \
        memcpy(&name##_, &address_, sizeof(address_));                                                                \
    } while (0)

#endif
