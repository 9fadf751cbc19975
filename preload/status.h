#ifndef SHEAF_PRELOAD_STATUS_H
#define SHEAF_PRELOAD_STATUS_H

#include <stdint.h>

/* What /proc/self/status says, such as "VmRSS:", in bytes; 0 where it cannot be read. Allocates nothing. */
uint64_t status_bytes(const char *key);

#endif
