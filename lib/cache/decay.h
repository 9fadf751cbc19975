/* Giving memory back, by age and on demand; and the optional thread that does it while the program does nothing. */
#ifndef SHEAF_CACHE_DECAY_H
#define SHEAF_CACHE_DECAY_H

#include <stdint.h>

/* Start the helper thread unless it runs. Not with any lock held. */
void helper_arm(void);

/* In the child of a fork there is no such thread. */
void helper_forget(void);

/* Calls of cache_trim_all(). */
uint64_t decay_trims(void);

#endif
