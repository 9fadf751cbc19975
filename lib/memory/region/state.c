#include "memory/region/state.h"

/* In a file of its own, so that every source of the region can use it without using another one. */
struct region region;
