#define _GNU_SOURCE
#include "platform/os/cpu.h"
#include "platform/arch/arch.h"
#include "platform/os/syscall.h"

#include <sched.h>
#include <sys/auxv.h>

#define CPU_BITS 8192 /* the maximum of x86-64 kernels */

unsigned cpu_allowed_count = 1;

/* A single call yields both the width of the kernel's CPU masks and the CPUs that this process may use. */
void cpu_count(unsigned *possible, unsigned *allowed)
{
    unsigned long mask[CPU_BITS / (8 * sizeof(long))];
    long bytes = sys_call3(SYS_sched_getaffinity, 0, sizeof(mask), (long)mask);
    *allowed = 0;
    *possible = CPU_BITS; /* a sandbox hides the masks: sections accept any number that the kernel gives */
    if (bytes > 0) {
        *possible = (unsigned)bytes * 8;
        for (size_t i = 0; i < (size_t)bytes / sizeof(long); i++)
            *allowed += (unsigned)__builtin_popcountl(mask[i]);
    }
    if (!*allowed)
        *allowed = 1;
    cpu_allowed_count = *allowed;
}

unsigned cpu_current(void)
{
    int cpu = sched_getcpu();
    return cpu < 0 ? 0 : (unsigned)cpu;
}

unsigned cpu_llc(void)
{
#ifdef ARCH_HAS_LLC
    return arch_llc();
#else
    return 0;
#endif
}

#if defined(__aarch64__) && !defined(__GLIBC__)
/*
 * A libgcc that was built for glibc asks by glibc's internal name whether the CPU has atomic instructions (LSE).
 * musl 1.2.3 does not have that name; where libc has it, the linker takes libc's.
 */
unsigned long __getauxval(unsigned long type); // NOLINT(bugprone-reserved-identifier)
__attribute__((weak)) unsigned long __getauxval(unsigned long type)
{
    return getauxval(type);
}
#endif
