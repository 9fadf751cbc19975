#define _GNU_SOURCE
#include "platform/rseq/rseq.h"
#include "platform/os/syscall.h"

#include <sys/auxv.h>

uint64_t rseq_restarts;

/* Sizes of the kernel's struct rseq (linux/rseq.h). */
enum {
    RSEQ_END_OF_MM_CID = RSEQ_MM_CID_AT + 4,
    RSEQ_FIRST_SIZE = 32,     /* a size that every kernel accepts */
    RSEQ_FIRST_FEATURES = 20, /* the size that glibc before 2.40 reports for an area of 32 bytes */
};
#ifndef AT_RSEQ_FEATURE_SIZE
#define AT_RSEQ_FEATURE_SIZE 27 /* Linux 6.3 */
#endif

#if SHEAF_HAVE_RSEQ

/* In glibc 2.35 and later. Weak, so that the object also loads with an older one and falls back. */
extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned int __rseq_size __attribute__((weak));

static int32_t area_cpu(uintptr_t start)
{
    return *(volatile int32_t *)((char *)__builtin_thread_pointer() + start + RSEQ_CPU_ID_AT);
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
 * glibc keeps an area in every thread even if the tunable glibc.pthread.rseq=0 forbids its registration; Sheaf
 * registers that area then. An area of 32 bytes includes mm_cid: older versions of glibc report 20 bytes because
 * they know no later fields.
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
    /* Not with our own registration: threads that have not registered yet would all read mm_cid 0. */
    *is_cid = want_cid && owner == RSEQ_LIBC && size >= RSEQ_END_OF_MM_CID;
    area->cs = start + RSEQ_CS_AT;
    area->slot = start + (*is_cid ? RSEQ_MM_CID_AT : RSEQ_CPU_ID_AT);
    return owner;
}

bool rseq_register_thread(const struct rseq_area *area)
{
    return register_area(area->cs - RSEQ_CS_AT);
}

static long sys_rseq(const struct rseq_area *area, unsigned long size, int flags)
{
    char *at = (char *)__builtin_thread_pointer() + area->cs - RSEQ_CS_AT;
    return sys_call(SYS_rseq, (long)at, (long)size, flags, (long)RSEQ_SIGNATURE, 0, 0);
}

bool rseq_stand_in(const struct rseq_area *area)
{
    return sys_rseq(area, RSEQ_FIRST_SIZE, 0) == 0;
}

/* Registrations end by the size that they began with: libc's is 32 bytes, or from glibc 2.41 on what it reports. */
void rseq_renew(const struct rseq_area *area)
{
    enum { UNREGISTER = 1 };
    unsigned long sizes[] = {RSEQ_FIRST_SIZE, __rseq_size};
    for (size_t i = 0; i < array_size(sizes); i++)
        if (sys_rseq(area, sizes[i], UNREGISTER) == 0) {
            sys_rseq(area, sizes[i], 0);
            return;
        }
    sys_rseq(area, RSEQ_FIRST_SIZE, 0); /* the thread was not registered: under RSEQ_OWN it need not be */
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

bool rseq_stand_in(const struct rseq_area *area)
{
    (void)area;
    return false;
}

void rseq_renew(const struct rseq_area *area)
{
    (void)area;
}

#endif
