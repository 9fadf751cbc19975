/* What the replacement of vfork() needs to know. */
#ifndef SHEAF_PRELOAD_VFORK_H
#define SHEAF_PRELOAD_VFORK_H

#include "slot/slot.h"

extern hidden uintptr_t vfork_area;

/* After the slots' mode is chosen. */
void vfork_init(void);

#endif
