/*
 * System calls that leave errno alone, because free() must not change it and slow paths run inside signal
 * handlers. The result is the kernel's: 0 or more, or a negative error number.
 */
#ifndef SHEAF_OS_SYSCALL_H
#define SHEAF_OS_SYSCALL_H

#include "platform/arch/arch.h"
#include ARCH_HEADER(syscall.h)

#include <errno.h>
#include <sys/syscall.h>

static inline long sys_call3(long nr, long a, long b, long c)
{
    return sys_call(nr, a, b, c, 0, 0, 0);
}

/* What libc's function returns for the kernel's result, with errno set. */
static inline int sys_result(long ret)
{
    if (ret >= 0)
        return (int)ret;
    errno = (int)-ret;
    return -1;
}

#endif
