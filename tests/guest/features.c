/*
 * Prints what of the kernel the fast paths depend on, a line for each thing, as comments of TAP.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef AT_RSEQ_FEATURE_SIZE
#define AT_RSEQ_FEATURE_SIZE 27
#define AT_RSEQ_ALIGN        28
#endif
#define END_OF_MM_CID      28 /* bytes of struct rseq up to mm_cid, its end included */
#define MEMBARRIER_QUERY   0
#define MEMBARRIER_RSEQ    (1 << 7)
#define MEMBARRIER_PRIVATE (1 << 3)

int main(void)
{
    unsigned long size = getauxval(AT_RSEQ_FEATURE_SIZE);
    long barriers = syscall(SYS_membarrier, MEMBARRIER_QUERY, 0, 0);
    bool rseq = syscall(SYS_rseq, NULL, 0, 0, 0) == 0 || errno != ENOSYS; /* EINVAL */
    printf("# page size: %ld\n", sysconf(_SC_PAGESIZE));
    printf("# hwcap: %#lx, hwcap2: %#lx\n", getauxval(AT_HWCAP), getauxval(AT_HWCAP2));
    printf("# rseq: %s, feature size %lu, alignment %lu\n", rseq ? "yes" : "no", size, getauxval(AT_RSEQ_ALIGN));
    printf("# mm_cid: %s\n", size >= END_OF_MM_CID ? "yes" : "no");
    printf("# membarrier: %s, for rseq: %s\n", barriers > 0 && barriers & MEMBARRIER_PRIVATE ? "yes" : "no",
           barriers > 0 && barriers & MEMBARRIER_RSEQ ? "yes" : "no");
    return 0;
}
