/* Giving memory back, by age and on demand. */
#ifndef SHEAF_CACHE_DECAY_H
#define SHEAF_CACHE_DECAY_H

#include <stdint.h>

/* Calls of cache_trim_all(). */
uint64_t decay_trims(void);

#endif
