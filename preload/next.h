/* Other definitions of the functions that this object exports, in the order in which objects were loaded. */
#ifndef SHEAF_PRELOAD_NEXT_H
#define SHEAF_PRELOAD_NEXT_H

#include "platform/config/config.h"

/* The next functions behind this object. */
extern hidden const struct other_malloc next_malloc;

/* Whether an object before this one defines the function. Any context. */
bool next_defined_before(const char *name);

#endif
