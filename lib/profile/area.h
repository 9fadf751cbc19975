/*
 * The table of samples: call stacks, live samples and modules, in the layout of lib/include/sheaf/profile.h.
 *
 * It exists twice. The private copy is the truth. What changes is copied to the *mirror*, which is the profile area
 * of the record and is never read, so that nothing that is written to the file can harm the process. LOCK_PROFILE
 * protects both. A signal handler that interrupted the holder of the lock adds no sample, and notes the address of a
 * sampled object that it frees in a small list, which the next holder works off before anything else. The address
 * cannot belong to a new sample by then, because only a holder adds samples.
 */
#ifndef SHEAF_PROFILE_AREA_H
#define SHEAF_PROFILE_AREA_H

#include "os/compiler.h"
#include "sheaf/profile.h"

#define SAMPLE_DEPTH 64 /* frames of a stack, as many as tcmalloc keeps */

struct sample {
    const void *address;
    size_t size, room; /* bytes requested, and bytes that it takes up */
    double probability;
    bool slowed; /* not by the mean that was asked for */
    uintptr_t pcs[SAMPLE_DEPTH];
    unsigned depth;
};

/* Set the table up unless that is done. Returns false if there is no memory. */
bool area_start(void);

/* Note that sampling was switched on, with a mean of `rate` bytes, or off (0). */
void area_switched(uint64_t rate);

/* Whether area_start() has been called. */
bool area_in_use(void);

/* Make `mirror` the profile area of the record and copy everything to it; NULL: there is none. Not in a signal
 * handler. */
void area_mirror(void *mirror);

/* In the child of a fork: allocations are counted from zero, and live samples stay. */
void area_fork_child(void);

/* Add a sample. Returns false if the lock or room is out of reach. */
bool area_add(const struct sample *sample);

/* Remove the sample of this address. Returns whether there was one, as far as the lock was in reach. */
bool area_remove(const void *address);

/* The stack of the live sample at this address. Returns its depth; 0 if there is no such sample. Takes no lock, so
 * other threads must not run. */
unsigned area_stack(const void *address, uintptr_t *pcs, unsigned most);

#endif
