/*
 * Variables that lower layers declare and upper layers define. Weak, so that a definition that moves down into its
 * own layer takes their place.
 */
#include "os/rseq.h"
#include "space/locks.h"

#define above __attribute__((weak))

above struct lock_group locks_others[CACHE_MAX / LOCK_GROUP - 1];
above struct rseq_roots rseq_roots;
unsigned simulated_slot; /* the slot of the only thread (SHEAF_SIMULATED in slot/slot.c) */
