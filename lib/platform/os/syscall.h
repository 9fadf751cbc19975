/*
 * System calls that leave errno alone, because free() must not change it and slow paths run inside signal
 * handlers. The result is the kernel's: 0 or more, or a negative error number.
 */
#ifndef SHEAF_OS_SYSCALL_H
#define SHEAF_OS_SYSCALL_H

#include <errno.h>
#include <sys/syscall.h>

#if defined(__x86_64__)
static inline long sys_call(long nr, long a, long b, long c, long d, long e, long f)
{
    long ret;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(ret)
                     : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return ret;
}
#elif defined(__aarch64__)
static inline long sys_call(long nr, long a, long b, long c, long d, long e, long f)
{
    register long x8 __asm__("x8") = nr;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    return x0;
}
#else
#error "Sheaf knows x86-64 and aarch64"
#endif

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
