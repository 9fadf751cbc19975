/* The table through which libsheaf-rcu reaches the allocator; see deferred/rcu_core.h. */
#ifndef SHEAF_MALLOC_DEFERRED_H
#define SHEAF_MALLOC_DEFERRED_H

#include "deferred/rcu_core.h"
#include "os/compiler.h"

sheaf_export extern const struct sheaf_rcu_core sheaf_rcu_core_1;

#endif
