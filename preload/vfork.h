/* The set-up of the vfork() replacement. */
#ifndef SHEAF_PRELOAD_VFORK_H
#define SHEAF_PRELOAD_VFORK_H

#include "slot/slot.h"

extern hidden uintptr_t vfork_area;

/* Must be called after slot_init(). */
void vfork_init(void);

#endif
