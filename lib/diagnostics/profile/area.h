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

#include "sheaf/profile.h"
#include "cache/slot/page.h"

#define SAMPLE_DEPTH 64 /* frames of a stack, as many as tcmalloc keeps */

/* Strata (sheaf/profile.h): first those of malloc's size classes. */
enum { STRATUM_LARGE = CACHE_CLASSES, STRATUM_ALWAYS, STRATA };

struct sample {
    const void *address;
    size_t size, room; /* bytes requested, and bytes that it takes up */
    double weight;
    uint32_t stack; /* of area_intern() */
    uint32_t stratum;
    bool slowed; /* not by the mean that was asked for */
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

/* Count the strata now. */
void area_count(void);

/* In the child of a fork: allocations are counted from zero, and live samples stay. */
void area_fork_child(void);

/*
 * An entry of this stack, in whatever stratum, as an offset that stays. A stack that is not known yet gets one
 * without samples. The result is an entry of depth 0 if there is no room or if depth is 0, and AREA_NO_STACK if the
 * lock is out of reach.
 */
#define AREA_NO_STACK UINT32_MAX
uint32_t area_intern(const uintptr_t *pcs, unsigned depth);

/* The address that stands for a line of an interpreted function (names.h); 0 if the lock is out of reach. */
struct script_name;
uintptr_t area_name(const struct script_name *name, uint32_t line);

/* The entry at such an offset. Its addresses never change; its sums do, under the lock. */
const struct sheaf_profile_stack *area_stack_entry(uint32_t offset);

/* Add a sample. Returns false if the lock or room is out of reach. */
bool area_add(const struct sample *sample);

/* Remove the sample of this address. Returns whether there was one, as far as the lock was in reach. */
bool area_remove(const void *address);

/* The stack of the live sample at this address, code only. Returns its depth; 0 if there is no such sample. Takes no
 * lock, so other threads must not run. */
unsigned area_stack(const void *address, uintptr_t *pcs, unsigned most);

#endif
