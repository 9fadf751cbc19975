/*
 * What libsheaf-rcu finds in whichever Sheaf is loaded, libsheaf or the preloaded object: the exported table
 * sheaf_rcu_core_1. The name changes when the table does in a way that older ones do not understand.
 */
#ifndef SHEAF_DEFERRED_RCU_CORE_H
#define SHEAF_DEFERRED_RCU_CORE_H

#include "sheaf/rcu.h"

#include <stdbool.h>
#include <stdint.h>

struct kmem_cache;

#define SHEAF_RCU_CORE_NAME "sheaf_rcu_core_1"

enum sheaf_rcu_put {
    SHEAF_RCU_TAKEN,
    SHEAF_RCU_SEALED,    /* taken, and a sheaf is full */
    SHEAF_RCU_NO_MEMORY, /* there is no sheaf to be had */
};

#define SHEAF_RCU_LEFT 1u
#define SHEAF_RCU_HELD 2u

struct sheaf_rcu_core {
    uint32_t size; /* of this table */
    void (*attach)(void (*kick)(void), void (*barrier_on)(struct kmem_cache *cache), void (*start)(void));
    bool (*owns)(const void *p);
    bool (*owns_cache)(const struct kmem_cache *cache);
    enum sheaf_rcu_put (*put)(void *p); /* p is owned */
    enum sheaf_rcu_put (*put_object)(struct kmem_cache *cache, void *object);
    void (*free)(void *p);
    unsigned (*seal)(const struct kmem_cache *cache, uint32_t age_ms);
    bool (*collect)(void);
    void (*finish)(void);
    bool (*waits)(const struct kmem_cache *cache);
    bool (*over_limit)(void);
    void (*tune)(size_t limit, uint32_t age_ms); /* 0: as it is; the core has started then */
    uint32_t (*age)(void);                       /* milliseconds */
    void (*note)(bool lost);                     /* a caller waited, or an object was lost */
    void (*stats)(struct sheaf_rcu_stats *stats);
};

#endif
