/* The table through which libsheaf-rcu reaches the allocator; see cache/deferred/rcu_allocator.h. */
#ifndef SHEAF_MALLOC_DEFERRED_H
#define SHEAF_MALLOC_DEFERRED_H

#include "cache/deferred/rcu_allocator.h"
#include "platform/os/compiler.h"

sheaf_export extern const struct sheaf_rcu_allocator sheaf_rcu_allocator_1;

#endif
