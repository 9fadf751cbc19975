/*
 * The allocator's own mappings outside the space (space/space.h) that may hold addresses of live objects. The leak
 * scan does not take such addresses for references of the program (leak/roots.h).
 */
#ifndef SHEAF_SPACE_OWN_H
#define SHEAF_SPACE_OWN_H

#include "os/compiler.h"

struct own_range {
    uintptr_t start, end;
};

/* Register a mapping that is never unmapped, or is registered again when it is replaced. Takes no lock. Mappings
 * beyond OWN_MOST are not registered. */
#define OWN_MOST 32
void own_note(const void *start, size_t size);

/* The registered mappings: stores at most `most` and returns their number. */
unsigned own_ranges(struct own_range *into, unsigned most);

/* The writable data of the object that this code belongs to; empty if that is the program itself, whose data are the
 * program's as well. */
struct own_range own_data(void);

#endif
