/* Lines of a script's source. */
#ifndef SHEAF_V8_SOURCE_H
#define SHEAF_V8_SOURCE_H

#include "diagnostics/v8/object.h"

/* The line in which that character of the source is, a string; 0 if it cannot be told. Changes the objects. */
uint32_t source_line(const struct v8_layout *layout, struct v8_objects *objects, uintptr_t source, uint32_t place);

#endif
