#include "memory/space/locks.h"

struct lock_group locks_first;
large_table struct lock_group locks_others[CACHE_MAX / LOCK_GROUP - 1];
