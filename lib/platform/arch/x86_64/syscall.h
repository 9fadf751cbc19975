/* System calls on x86-64. */
#ifndef SHEAF_ARCH_SYSCALL_H
#define SHEAF_ARCH_SYSCALL_H

#include <sys/syscall.h>

#ifndef SYS_rseq
#define SYS_rseq 334 /* not in headers of Linux before 4.18 */
#endif

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

#endif
