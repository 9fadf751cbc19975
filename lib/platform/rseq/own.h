/*
 * The rseq area that Sheaf registers for each thread where libc registers none: glibc before 2.35, musl, and the
 * tunable glibc.pthread.rseq=0. It is thread-local with a fixed distance from the thread pointer, as libc's is, so
 * the sections are the same.
 *
 * A thread registers in its first slow path, and may run fast paths before. So that these miss, the area of a thread
 * that is not registered holds the number of a slot that nobody ever uses (own_reserve()): its words are 0, which
 * lead to the constant sheaf. Sections that are reached otherwise are run only after own_registered().
 *
 * - Created: the area is a copy of the object's image of thread-local data, with the reserved number.
 * - Registered: the kernel writes the numbers.
 * - Refused: another user of rseq has registered an area for the thread, or a filter forbids it. The reserved number
 *   stays.
 * - A signal handler may register the thread that it interrupts: registering twice is harmless.
 * - The child of fork() inherits the registration of the thread that forked. For vfork() and clone() there are
 *   rseq_stand_in() and platform/os/foreign.h, as with libc's area.
 * - Ended: when a thread exits, the kernel forgets the area, and libc initializes it again for the next thread. With
 *   musl the registration ends before, by a destructor of thread-specific data, because a detached thread unmaps its
 *   own memory before it exits: the kernel would write to an area that is gone, and kill the process.
 */
#ifndef SHEAF_RSEQ_OWN_H
#define SHEAF_RSEQ_OWN_H

#include "platform/rseq/rseq.h"

#if SHEAF_HAVE_RSEQ

enum own_state { OWN_CREATED, OWN_REGISTERED, OWN_REFUSED, OWN_ENDED };
#define OWN_MARK 0x2d6661656873206full /* tells the area in the image */

enum { UNREGISTER = 1 }; /* a flag of the system call */

#define RSEQ_FIRST_SIZE 32 /* bytes of an area that every kernel accepts */
struct own_area {
    union {
        char kernel[RSEQ_FIRST_SIZE];
        uint32_t field[RSEQ_FIRST_SIZE / 4];
    };
    uint64_t mark;
    uint32_t state;  /* enum own_state */
    uint32_t rounds; /* of destructors that musl has run for the thread */
} __attribute__((aligned(32)));
/* A function call would find it otherwise, and may allocate. */
#define OWN_AREA_MODEL __attribute__((tls_model("initial-exec")))
extern hidden _Thread_local struct own_area own_area OWN_AREA_MODEL;

/* The distance of the area from the thread pointer. */
uintptr_t own_offset(void);

/* Register the area for the calling thread, unless that was done or refused before. Returns whether it is registered.
 */
bool own_register(void);
static inline bool own_registered(void)
{
    return likely(own_area.state == OWN_REGISTERED) || own_register();
}

/* Whether this thread's area could not be registered. */
static inline bool own_refused(void)
{
    return own_area.state == OWN_REFUSED;
}

/*
 * Let the areas of threads that will be created hold this number until they register. Returns false if that is not
 * possible, or if other threads exist: then no fast path may be used that does not ask own_registered().
 */
bool own_reserve(const struct rseq_area *area, uint32_t slot);

/* If the calling thread's area is `area`: note that it is registered, or that it is not, and that it shall not be. */
void own_set(const struct rseq_area *area, bool registered);

#else

static inline bool own_registered(void)
{
    return false;
}
static inline bool own_refused(void)
{
    return false;
}
static inline bool own_reserve(const struct rseq_area *area, uint32_t slot)
{
    (void)area, (void)slot;
    return false;
}

#endif

#endif
