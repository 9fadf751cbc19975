/* x86-64, as platform/arch/arch.h describes it. */
#ifndef SHEAF_ARCH_CPU_H
#define SHEAF_ARCH_CPU_H

#include "platform/os/compiler.h"

#include <cpuid.h>

#define ARCH_STACK_POINTER(at)      __asm__ volatile("mov %%rsp, %0" : "=r"(at))
#define ARCH_RELAX()                __builtin_ia32_pause()
#define ARCH_CONTEXT_STACK(context) ((uintptr_t)(context)->uc_mcontext.gregs[REG_RSP])
#define ARCH_RED_ZONE               128
#define ARCH_OLDEST_GLIBC           "2.2.5"
#define ARCH_FRAME_POINTER          6
#define ARCH_HAS_PLACES             1
#define ARCH_CONTROL_BLOCK_SELF     1
#define ARCH_R_DTPMOD               R_X86_64_DTPMOD64
#define ARCH_R_TPOFF                R_X86_64_TPOFF64
#define ARCH_ANY_THREAD_POINTER     1
#define ARCH_HAS_LLC                1

/*
 * cpuid gives the x2APIC number (leaf 0xb) and the number of CPUs that share the last-level cache (leaf 4, on AMD
 * 0x8000001d), from which follows how many low bits of the number distinguish them. No file is read, because /sys
 * may be hidden and a signal handler may be running.
 */
static inline unsigned arch_llc(void)
{
    unsigned a, b, c, d, apic;
    unsigned sharing = 0;
    if (!__get_cpuid_count(0xb, 0, &a, &b, &c, &d) || !b)
        return 0;
    apic = d;
    unsigned leaf = 4;
    __get_cpuid(0, &a, &b, &c, &d);
    if (b == 0x68747541) /* "Auth": AMD has the same fields in another leaf */
        leaf = 0x8000001d;
    for (unsigned i = 0; i < 8 && __get_cpuid_count(leaf, i, &a, &b, &c, &d) && (a & 31); i++)
        if (((a >> 5) & 7) >= 3)
            sharing = ((a >> 14) & 4095) + 1;
    if (sharing < 2)
        return 0;
    return apic >> (log2_floor(sharing - 1) + 1);
}

#endif
