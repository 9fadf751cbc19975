/* Returning unused memory of the whole process, by age and on demand. No lock is held on entry or exit. */
#ifndef SHEAF_PROCESS_DECAY_H
#define SHEAF_PROCESS_DECAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* hooks.poll: run a step of decay if one is due. Also applies the memory limit of the process once, and decides
 * whether the helper thread should start. */
void decay_poll(unsigned slot);

/*
 * hooks.burst_ended: drain all caches that have few objects out, and return free pages inside slabs of sparse
 * caches and free memory of the region, because these frees may be the program's last calls. If the region has
 * learned that such memory is soon needed again, only empty slabs and free pages inside slabs are returned. Does
 * nothing if the remote drain lock is taken, as it is for the flushes that are made here.
 */
void decay_after_burst(void);

/* Run a step now and return free memory of the region to the system; with `all`, also what the region has learned
 * to keep. */
void cache_decay_idle(bool all);

/*
 * Publish the gauges of all caches in the record, if there is one. Slow paths publish only their own cache, but a
 * record must also show what was returned since, perhaps by a helper thread in a program that sleeps.
 */
void cache_publish_all(void);

/* Add what the words of all slots count to the counters. Operations that run meanwhile may be missed. */
void cache_fold_all(void);

/* Drain all caches, so that their free memory is in the region and can serve any request. */
void cache_drain_all(void);

/* The same, and return all free memory to the system. Returns the bytes returned to the system. */
size_t cache_trim_all(void);

/* How often cache_trim_all() was called. */
uint64_t decay_trims(void);

#endif
