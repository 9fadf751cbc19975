/* The start of the allocator, at the first allocation of the process. */
#ifndef SHEAF_PROCESS_START_H
#define SHEAF_PROCESS_START_H

#include "platform/os/compiler.h"

/* Set up everything below malloc, once; several threads may call it at once. Returns false if the system refuses
 * memory, in a signal handler that interrupted the start, and where Sheaf steps aside (sheaf_steps_aside()). Takes
 * LOCK_SETUP; no lock may be held. */
bool cache_layer_init(void);

#endif
