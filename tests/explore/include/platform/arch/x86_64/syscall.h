/* System calls of the code under exploration: the explorer decides which of them reach the kernel (system.c). */
#ifndef SHEAF_ARCH_SYSCALL_H
#define SHEAF_ARCH_SYSCALL_H

long sys_call(long nr, long a, long b, long c, long d, long e, long f);

#endif
