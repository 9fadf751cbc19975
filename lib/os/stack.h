/*
 * The calls that led here: return addresses, innermost first, those of this object left out.
 *
 * By the unwinder of libgcc, linked in statically: it reads the tables that every program has, where a walk along
 * frame pointers ends at the first library that was built without them. It takes no lock and no memory (tables are
 * found through libc's _dl_find_object), so it may be used within malloc and in signal handlers. Up to 0.7 us a
 * frame, where functions are large.
 */
#ifndef SHEAF_OS_STACK_H
#define SHEAF_OS_STACK_H

#include <stdint.h>

#define STACK_MOST 16

/* At most `most` addresses into pcs; how many there are. */
unsigned stack_walk(uintptr_t *pcs, unsigned most);

#endif
