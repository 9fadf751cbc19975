#ifndef SHEAF_PRELOAD_STATUS_H
#define SHEAF_PRELOAD_STATUS_H

#include <stdint.h>

/*
 * The value in bytes of a line in kB of /proc/self/status, such as "VmRSS:"; 0 if it cannot be read. Allocates
 * nothing.
 */
uint64_t status_bytes(const char *key);

#endif
