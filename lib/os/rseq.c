#define _GNU_SOURCE
#include "os/rseq.h"
#include "os/syscall.h"

#include <sys/auxv.h>

uint64_t rseq_restarts;

/* The kernel's struct rseq: fields that we use (linux/rseq.h). */
enum {
    RSEQ_CPU_ID = 4,
    RSEQ_CS = 8,
    RSEQ_MM_CID = 24,
    RSEQ_END_OF_MM_CID = 28,
    RSEQ_FIRST_SIZE = 32,     /* what every kernel accepts */
    RSEQ_FIRST_FEATURES = 20, /* what glibc before 2.40 says of an area of 32 bytes */
};
#ifndef AT_RSEQ_FEATURE_SIZE
#define AT_RSEQ_FEATURE_SIZE 27 /* Linux 6.3 */
#endif

#if SHEAF_HAVE_RSEQ

/* glibc 2.35 and later. Weak, so that the object loads under an older one and falls back. */
extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned int __rseq_size __attribute__((weak));

static int32_t area_cpu(uintptr_t start)
{
    return *(volatile int32_t *)((char *)__builtin_thread_pointer() + start + RSEQ_CPU_ID);
}

static bool register_area(uintptr_t start)
{
    if (area_cpu(start) >= 0)
        return true;
    char *at = (char *)__builtin_thread_pointer() + start;
    if ((uintptr_t)at % RSEQ_FIRST_SIZE)
        return false;
    return sys_call(SYS_rseq, (long)at, RSEQ_FIRST_SIZE, 0, (long)RSEQ_SIGNATURE, 0, 0) == 0;
}

/*
 * glibc keeps an area in every thread even where it was told not to register it (the tunable glibc.pthread.rseq=0);
 * that is where we register then. An area of 32 bytes holds mm_cid: glibc said 20 because it knew no more fields.
 */
enum rseq_owner rseq_probe(bool own, bool want_cid, struct rseq_area *area, bool *is_cid)
{
    *is_cid = false;
    if (!&__rseq_offset || !&__rseq_size || __rseq_offset == 0)
        return RSEQ_NONE;
    uintptr_t start = (uintptr_t)__rseq_offset;
    enum rseq_owner owner = RSEQ_LIBC;
    if (__rseq_size == 0) {
        if (!own || !register_area(start))
            return RSEQ_NONE;
        owner = RSEQ_OWN;
    }
    if (area_cpu(start) < 0)
        return RSEQ_NONE;
    unsigned long size = __rseq_size;
    unsigned long features = getauxval(AT_RSEQ_FEATURE_SIZE);
    if (size == RSEQ_FIRST_FEATURES || size == RSEQ_FIRST_SIZE)
        size = features < RSEQ_FIRST_SIZE ? features : RSEQ_FIRST_SIZE;
    /* Threads that did not register yet would all read 0 there: never with our own registration. */
    *is_cid = want_cid && owner == RSEQ_LIBC && size >= RSEQ_END_OF_MM_CID;
    area->cs = start + RSEQ_CS;
    area->slot = start + (*is_cid ? RSEQ_MM_CID : RSEQ_CPU_ID);
    return owner;
}

bool rseq_register_thread(const struct rseq_area *area)
{
    return register_area(area->cs - RSEQ_CS);
}

#else

enum rseq_owner rseq_probe(bool own, bool want_cid, struct rseq_area *area, bool *is_cid)
{
    (void)own, (void)want_cid, (void)area;
    *is_cid = false;
    return RSEQ_NONE;
}

bool rseq_register_thread(const struct rseq_area *area)
{
    (void)area;
    return false;
}

#endif
