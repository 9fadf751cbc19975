#define _GNU_SOURCE
#include "platform/rseq/rseq.h"
#include "platform/os/syscall.h"
#include "platform/rseq/own.h"

#include <sys/auxv.h>

uint64_t rseq_restarts;

/* Sizes of the kernel's struct rseq (linux/rseq.h). */
enum {
    RSEQ_END_OF_MM_CID = RSEQ_MM_CID_AT + 4,
    RSEQ_FIRST_FEATURES = 20, /* the size that glibc before 2.40 reports for an area of 32 bytes */
};
#ifndef AT_RSEQ_FEATURE_SIZE
#define AT_RSEQ_FEATURE_SIZE 27 /* Linux 6.3 */
#endif

#if SHEAF_HAVE_RSEQ

/* In glibc 2.35 and later. Weak, so that the object also loads with an older one and falls back. */
extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned int __rseq_size __attribute__((weak));

/*
 * An area of 32 bytes includes mm_cid: older versions of glibc report 20 bytes because they know no later fields.
 */
static unsigned long libc_features(void)
{
    unsigned long size = __rseq_size;
    return size == RSEQ_FIRST_FEATURES || size == RSEQ_FIRST_SIZE ? RSEQ_FIRST_SIZE : size;
}

static int32_t cpu_in(uintptr_t area)
{
    return *(volatile int32_t *)((char *)__builtin_thread_pointer() + area + RSEQ_CPU_ID_AT);
}

/* With the tunable glibc.pthread.rseq=0, libc has an area, but does not register it, and reports the size 0. */
enum rseq_owner rseq_probe(bool own, bool want_cid, struct rseq_area *area, bool *is_cid)
{
    bool libc =
        &__rseq_offset && &__rseq_size && __rseq_offset && __rseq_size && cpu_in((uintptr_t)__rseq_offset) >= 0;
    *is_cid = false;
    if (!libc && (!own || !own_register()))
        return RSEQ_NONE;
    uintptr_t start = libc ? (uintptr_t)__rseq_offset : own_offset();
    unsigned long size = libc ? libc_features() : RSEQ_FIRST_SIZE, known = getauxval(AT_RSEQ_FEATURE_SIZE);
    *is_cid = want_cid && size >= RSEQ_END_OF_MM_CID && known >= RSEQ_END_OF_MM_CID;
    area->cs = start + RSEQ_CS_AT;
    area->slot = start + (*is_cid ? RSEQ_MM_CID_AT : RSEQ_CPU_ID_AT);
    return libc ? RSEQ_LIBC : RSEQ_OWN;
}

static long sys_rseq(const struct rseq_area *area, unsigned long size, int flags)
{
    char *at = (char *)__builtin_thread_pointer() + area->cs - RSEQ_CS_AT;
    return sys_call(SYS_rseq, (long)at, (long)size, flags, (long)RSEQ_SIGNATURE, 0, 0);
}

/*
 * With Linux 4.18 a child of vfork() inherits the registration, and the kernel answers EBUSY. That counts as a
 * refusal: where such a child ran sections, blocks got two owners (tests/regress/fork.c in a guest with that kernel).
 */
bool rseq_stand_in(const struct rseq_area *area)
{
    bool done = sys_rseq(area, RSEQ_FIRST_SIZE, 0) == 0;
    own_set(area, done);
    return done;
}

/* Registrations end by the size that they began with: libc's is 32 bytes, or from glibc 2.41 on what it reports. */
void rseq_renew(const struct rseq_area *area)
{
    unsigned long sizes[] = {RSEQ_FIRST_SIZE, &__rseq_size ? __rseq_size : RSEQ_FIRST_SIZE};
    for (size_t i = 0; i < array_size(sizes); i++)
        if (sys_rseq(area, sizes[i], UNREGISTER) == 0) {
            own_set(area, sys_rseq(area, sizes[i], 0) == 0);
            return;
        }
    own_set(area, sys_rseq(area, RSEQ_FIRST_SIZE, 0) == 0); /* under RSEQ_OWN the thread need not be registered */
}

#else

enum rseq_owner rseq_probe(bool own, bool want_cid, struct rseq_area *area, bool *is_cid)
{
    (void)own, (void)want_cid, (void)area;
    *is_cid = false;
    return RSEQ_NONE;
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
