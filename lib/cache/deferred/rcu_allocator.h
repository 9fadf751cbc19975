/* The exported table sheaf_rcu_allocator_1, which libsheaf-rcu looks up in libsheaf and in the preloaded object. Its
 * name changes when the table changes incompatibly. */
#ifndef SHEAF_DEFERRED_RCU_ALLOCATOR_H
#define SHEAF_DEFERRED_RCU_ALLOCATOR_H

#include "sheaf/rcu.h"

#include <stdbool.h>
#include <stdint.h>

struct kmem_cache;

#define SHEAF_RCU_ALLOCATOR_NAME "sheaf_rcu_allocator_1"

enum sheaf_rcu_put {
    SHEAF_RCU_TAKEN,
    SHEAF_RCU_SEALED,    /* taken, and a sheaf was sealed */
    SHEAF_RCU_NO_MEMORY, /* not taken: there is no memory for a sheaf */
};

#define SHEAF_RCU_LEFT 1u
#define SHEAF_RCU_HELD 2u

struct sheaf_rcu_allocator {
    uint32_t size; /* of this table */
    void (*attach)(void (*kick)(void), void (*barrier_on)(struct kmem_cache *cache), void (*start)(void));
    bool (*owns)(const void *p);
    bool (*owns_cache)(const struct kmem_cache *cache);
    enum sheaf_rcu_put (*put)(void *p); /* p must be owned: owns() */
    enum sheaf_rcu_put (*put_object)(struct kmem_cache *cache, void *object);
    void (*free)(void *p);
    unsigned (*seal)(const struct kmem_cache *cache, uint32_t age_ms);
    bool (*collect)(void);
    void (*finish)(void);
    bool (*waits)(const struct kmem_cache *cache);
    bool (*over_limit)(void);
    void (*tune)(size_t limit, uint32_t age_ms); /* 0: unchanged. Starts the allocator */
    uint32_t (*age)(void);                       /* milliseconds */
    void (*note)(bool lost);                     /* count a wait, or a leaked object */
    void (*stats)(struct sheaf_rcu_stats *stats);
};

#endif
