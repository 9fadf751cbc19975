/*
 * mlockall() and munlockall(), because what is mapped ahead counts against RLIMIT_MEMLOCK. All else that the calls do
 * is left to the system. Programs that make the system call themselves have what the region finds out when it is
 * refused.
 */
#define _GNU_SOURCE
#include "platform/os/syscall.h"
#include "process/locked.h"

#include <sys/mman.h>

/* New mappings are locked already while the call is under way, so the state is set before. */
sheaf_export int mlockall(int flags)
{
    bool future = flags & MCL_FUTURE, before = locked_set(future);
    locked_prepare();
    long ret = sys_call3(SYS_mlockall, flags, 0, 0);
    if (ret < 0)
        locked_set(before);
    return sys_result(ret);
}

sheaf_export int munlockall(void)
{
    long ret = sys_call3(SYS_munlockall, 0, 0, 0);
    if (ret >= 0)
        locked_set(false);
    return sys_result(ret);
}
