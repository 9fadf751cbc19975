/* The start of the allocator, at the first allocation of the process. */
#ifndef SHEAF_PROCESS_START_H
#define SHEAF_PROCESS_START_H

#include "os/compiler.h"

/* Set up everything below malloc, once; any number of threads may call it. Returns false if the system grants no
 * memory, or in a signal handler that interrupted the start. */
bool cache_layer_init(void);

#endif
