/* aarch64, as platform/arch/arch.h describes it. */
#ifndef SHEAF_ARCH_CPU_H
#define SHEAF_ARCH_CPU_H

#define ARCH_STACK_POINTER(at)      __asm__ volatile("mov %0, sp" : "=r"(at))
#define ARCH_RELAX()                __asm__ volatile("yield")
#define ARCH_CONTEXT_STACK(context) ((uintptr_t)(context)->uc_mcontext.sp)
#define ARCH_RED_ZONE               0
#define ARCH_HAS_PLACES             0
#define ARCH_OLDEST_GLIBC           "2.17"

#endif
