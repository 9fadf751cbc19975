/*
 * Calls that go up: a lower folder reaches a higher one only through this table, so that includes and calls go one
 * way (tests/check/tree.py and calls.py hold that).
 *
 * An entry is NULL until the component that owns it sets it. It is set at most once, by a plain or releasing store
 * that precedes every call which depends on it, and it is never cleared unless noted. "Any context" means with any
 * lock held, in signal handlers, and between fork() and exec(): such a function takes no lock and allocates nothing.
 *
 * | entry            | set by                        | when                     | called in |
 * |------------------|-------------------------------|--------------------------|----------------------------------------|
 * | may_wait         | process/start.c               | start                    | any context, by a thread about to
 * wait | | attach_features  | process/start.c               | start                    | set-up of a cache; it may
 * run twice at | |                  |                               |                          | once, with the same
 * result             | | look             | process/start.c               | start                    | slow paths, no
 * lock held               | | publish          | preload/record.c              | record opened (cleared   | slow
 * paths, decay, trims, with at most | |                  |                               | where it is lost)        |
 * the takeover lock held                 | | report           | feature/debug.c               | first debugged cache
 * | misuse reports, any context            | | slab_created     | feature/debug.c               | first debugged
 * cache     | a watched cache's slab path, no lock   | | slab_released    |                               | | | |
 * slab_retired     | libsheaf-rcu, through         | that library loaded      | any context | | rcu_kick         |
 * malloc/deferred.c             |                          | any context                            | |
 * rcu_barrier_on   |                               |                          | kmem_cache_destroy(), no lock held |
 * | rcu_start        |                               |                          | kmem_cache_create(), no lock held |
 * | rcu_free_large   |                               |                          | after a grace period, no lock held
 * | | rcu_large_size   |                               |                          | any context | | validate_large |
 * malloc/large_debug.c          | large blocks debugged    | exit                                   | | huge_clock |
 * tests only                    | before the first thread  | region, its lock held                  |
 */
#ifndef SHEAF_OS_HOOKS_H
#define SHEAF_OS_HOOKS_H

#include "os/compiler.h"

struct cache_shape;
struct kmem_cache;
struct lock;
struct slab_cache;

struct hooks {
    /* Whether the calling thread may wait for the lock; false where it holds one that follows in the lock order. */
    bool (*may_wait)(const struct lock *lock);

    /* Let each feature that applies to the cache attach itself (cache/ops.h) and adapt the shape. */
    void (*attach_features)(struct kmem_cache *cache, struct cache_shape *shape);

    /* One slow path in 32: look at the clock, and run a step of decay if one is due. */
    void (*look)(unsigned slot);

    /* Copy the cache's gauges to the record; with NULL, those of large blocks. */
    void (*publish)(const struct kmem_cache *cache);

    /* Report misuse with stacks instead of in one line. `ignored`: the program goes on afterwards. */
    void (*report)(const char *kind, const void *p, const char *what, bool ignored);

    /* A slab of a watched cache came from the region, or is about to go back. Returning false refuses the slab. */
    bool (*slab_created)(struct slab_cache *cache, uint32_t unit);
    void (*slab_released)(struct slab_cache *cache, uint32_t unit);

    /* A slab of a typesafe-by-RCU cache waits for a grace period. */
    void (*slab_retired)(void);

    /* Something waits for a grace period. NULL: libsheaf-rcu is not loaded, and nothing ever waits. */
    void (*rcu_kick)(void);
    /* Wait for all deferred frees of the cache. */
    void (*rcu_barrier_on)(struct kmem_cache *cache);
    /* Be ready to wait for grace periods; may start a thread. */
    void (*rcu_start)(void);
    /* Free a large block, or tell its size in bytes. */
    void (*rcu_free_large)(void *p);
    size_t (*rcu_large_size)(void *p);

    /* Check all debugged large blocks, and return the number of problems reported. */
    unsigned (*validate_large)(void);

    /* The clock by which the first touch of a huge page is timed, in nanoseconds; NULL: the thread's CPU clock. */
    uint64_t (*huge_clock)(void);
};

extern hidden struct hooks hooks;

#endif
