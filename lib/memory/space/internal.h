/*
 * The allocator's own mappings outside the space (memory/space/space.h) that may hold addresses of live objects. The
 * leak scan does not take such addresses for references of the program (diagnostics/leak/roots.h).
 */
#ifndef SHEAF_SPACE_INTERNAL_H
#define SHEAF_SPACE_INTERNAL_H

#include "platform/os/compiler.h"

struct internal_range {
    uintptr_t start, end;
};

/* Register a mapping that is never unmapped, or is registered again when it is replaced. Takes no lock. Mappings
 * beyond INTERNAL_MOST are not registered. */
#define INTERNAL_MOST 32
void internal_note(const void *start, size_t size);

/* The registered mappings: stores at most `most` and returns their number. */
unsigned internal_ranges(struct internal_range *into, unsigned most);

/* The writable data of the object that this code belongs to; empty if that is the program itself, whose data are the
 * program's as well. */
struct internal_range own_data(void);

#endif
