#define _GNU_SOURCE
#include "platform/os/cpu.h"
#include "platform/os/syscall.h"

#include <sched.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

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

/*
 * cpuid gives the x2APIC number (leaf 0xb) and the number of CPUs that share the last-level cache (leaf 4, on AMD
 * 0x8000001d), from which follows how many low bits of the number distinguish them. No file is read, because /sys
 * may be hidden and a signal handler may be running.
 */
unsigned cpu_llc(void)
{
#if defined(__x86_64__)
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
#else
    return 0;
#endif
}
