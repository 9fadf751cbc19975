/* Returning unused memory of the whole process, by age and on demand. No lock is held on entry or exit. */
#ifndef SHEAF_PROCESS_DECAY_H
#define SHEAF_PROCESS_DECAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* hooks.look: run a step of decay if one is due, and let the helper thread and the memory limit be considered. */
void decay_look(unsigned slot);

/*
 * hooks.burst_ended: drain all caches that have few objects out, and return free pages inside their slabs. These
 * frees may be the program's last calls. A program whose bursts come again soon is left alone: the region has learned
 * that.
 */
void decay_after_burst(void);

/* Run a step now and return free memory of the region to the system; what the region learned to keep only with
 * `all`. */
void cache_decay_idle(bool all);

/* Add all that the words of slots count to the counters; exact except for what runs meanwhile. */
void cache_fold_all(void);

/* Return everything that is not in use. Returns the bytes returned to the system. */
size_t cache_trim_all(void);

/* How often cache_trim_all() was called. */
uint64_t decay_trims(void);

#endif
