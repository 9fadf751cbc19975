/*
 * Calls after which a program with one thread would notice the helper thread: those that the system refuses to
 * processes with several threads, and those that change only the calling thread, so that the helper would keep the
 * rights that the program has given up, and the next setuid() of libc, which changes all threads, would end in
 * abort(). The helper ends before such a call. The one that starts after it inherits what the calling thread has.
 *
 * Programs that make these system calls by themselves are not seen here; docs/rest.md says what becomes of them.
 */
#define _GNU_SOURCE
#include "platform/os/syscall.h"
#include "preload/names.h"
#include "process/helper.h"

#include <linux/capability.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/prctl.h>

static int call_unshare(int flags)
{
    return sys_result(sys_call3(SYS_unshare, flags, 0, 0));
}

static int call_setns(int file, int type)
{
    return sys_result(sys_call3(SYS_setns, file, type, 0));
}

static int call_capset(cap_user_header_t header, cap_user_data_t data)
{
    return sys_result(sys_call3(SYS_capset, (long)header, (long)data, 0));
}

/* What unshare() refuses to processes with several threads. */
#define ALONE (CLONE_NEWUSER | CLONE_THREAD | CLONE_SIGHAND | CLONE_VM)

sheaf_export int unshare(int flags)
{
    __typeof__(call_unshare) *next = next_or("unshare", __typeof__(call_unshare), call_unshare);
    if (!(flags & ALONE))
        return next(flags);
    bool was = helper_leave();
    int ret = next(flags);
    helper_return(was);
    return ret;
}

sheaf_export int setns(int file, int type)
{
    __typeof__(call_setns) *next = next_or("setns", __typeof__(call_setns), call_setns);
    bool was = helper_leave();
    int ret = next(file, type);
    helper_return(was);
    return ret;
}

/* glibc has the function, but no header of its own declares it. */
sheaf_export int capset(cap_user_header_t header, cap_user_data_t data);
sheaf_export int capset(cap_user_header_t header, cap_user_data_t data)
{
    __typeof__(call_capset) *next = next_or("capset", __typeof__(call_capset), call_capset);
    bool was = helper_leave();
    int ret = next(header, data);
    helper_return(was);
    return ret;
}

static bool changes_rights(int option)
{
    return option == PR_SET_KEEPCAPS || option == PR_SET_SECUREBITS || option == PR_CAPBSET_DROP ||
           option == PR_CAP_AMBIENT || option == PR_SET_NO_NEW_PRIVS || option == PR_SET_SECCOMP;
}

static int call_prctl(int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d)
{
    return sys_result(sys_call(SYS_prctl, option, (long)a, (long)b, (long)c, (long)d, 0));
}

/* As in libc, arguments that the caller did not pass are read but not used. No helper starts behind a filter of the
 * program's, which might end the process for it. */
sheaf_export int prctl(int option, ...)
{
    va_list rest;
    va_start(rest, option);
    unsigned long a = va_arg(rest, unsigned long), b = va_arg(rest, unsigned long);
    unsigned long c = va_arg(rest, unsigned long), d = va_arg(rest, unsigned long);
    va_end(rest);
    __typeof__(prctl) *next = next_or("prctl", __typeof__(prctl), NULL);
    bool rights = changes_rights(option), was = rights && helper_leave();
    int ret = next ? next(option, a, b, c, d) : call_prctl(option, a, b, c, d);
    if (option == PR_SET_SECCOMP && ret == 0)
        helper_never();
    if (rights)
        helper_return(was && option != PR_SET_SECCOMP);
    return ret;
}
