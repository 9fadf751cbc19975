/*
 * Included before the tests where the headers are older than what they use. The functions that Sheaf defines are
 * weak, because the programs are linked without Sheaf.
 */
#ifndef SHEAF_TESTS_OLDER_H
#define SHEAF_TESTS_OLDER_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <malloc.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

#if !__GLIBC_PREREQ(2, 33)
struct mallinfo2 {
    size_t arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};
struct mallinfo2 mallinfo2(void) __attribute__((weak));
#endif
#if !__GLIBC_PREREQ(2, 34)
pid_t _Fork(void) __attribute__((weak));
#endif

#ifdef __cplusplus
}
#endif

#if !__GLIBC_PREREQ(2, 30)
#define gettid() ((pid_t)syscall(SYS_gettid))
#endif
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif
#if !defined(SYS_rseq) && defined(__x86_64__)
#define SYS_rseq 334
#endif
#ifndef SYS_clone3
#define SYS_clone3 435
#endif
#endif
