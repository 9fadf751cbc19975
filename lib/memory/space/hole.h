/* What files and trials tell of the address space and the machine: holes, and how many CPUs there may be. */
#ifndef SHEAF_SPACE_HOLE_H
#define SHEAF_SPACE_HOLE_H

#include "platform/os/compiler.h"

/*
 * A place that the system would choose for a mapping of this size, at a multiple of `align`; NULL when there is none.
 * Another thread may map something there meanwhile.
 */
char *hole_anywhere(size_t size, size_t align);

/*
 * The lowest free place of this size in [from, to), at a multiple of `align`, by /proc/self/maps; 0 when there is
 * none, and HOLE_UNKNOWN where that file cannot be read. Another thread may map something there meanwhile. The caller
 * holds the region's lock.
 */
#define HOLE_UNKNOWN UINTPTR_MAX
uintptr_t hole_from(uintptr_t from, uintptr_t to, size_t size, size_t align);

/* Whether the page at this address is in memory. If nothing was written there, new mappings are locked. */
bool is_resident(void *page);

/* The number that all CPUs have lower numbers than, by /sys; `most` if that is less or the file cannot be read. */
unsigned cpus_possible(unsigned most);

#endif
