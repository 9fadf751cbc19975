/*
 * Calls that go up: a folder reaches those above it only through this table and cache/ops.h. Includes and other calls
 * go down (tests/check/tree.py and tests/check/calls.py hold that).
 *
 * An entry is NULL until its owner sets it. It is set at most once, before every call that depends on it, and never
 * cleared unless noted. "Any context" means with any lock held, in signal handlers, and between fork() and exec():
 * such a function takes no lock and allocates nothing.
 */
#ifndef SHEAF_OS_HOOKS_H
#define SHEAF_OS_HOOKS_H

#include "platform/os/compiler.h"

#include "sheaf/control.h"

#include <pthread.h>

struct cache_shape;
struct kmem_cache;
struct lock;
struct sheaf_profile_stratum;
struct slab_cache;

struct hooks {
    /* ---- set by process/start.c at the start ---- */

    /* Whether the calling thread may wait for the lock: it holds none that follows in the lock order. Called by a
     * thread that is about to wait, in any context. */
    bool (*may_wait)(const struct lock *lock);

    /* Let each feature that applies to the cache attach itself (cache/ops.h) and adapt the shape. Called while a
     * cache is being set up, perhaps by two threads at once for the same cache. */
    void (*attach_features)(struct kmem_cache *cache, struct cache_shape *shape);

    /* Look at the clock, and run a step of decay if one is due. Called by one slow path in 32, with no lock held. */
    void (*poll)(unsigned slot);

    /* Slabs fell to half of what they were, or by an eighth again. Called by each flush of a sheaf that finds it,
     * with at most the locks of setup and remote drains held. */
    void (*burst_ended)(void);

    /* ---- set by preload/start.c at the first allocation ---- */

    /* Returns pthread_create(), or NULL if the program has none. Called with no lock held. */
    __typeof__(pthread_create) *(*thread_create)(void);

    /* ---- set by preload/record.c when a record is opened; cleared in a child of fork that cannot have one ---- */

    /* Copy the gauges of the cache to the record, and those of the process if slabs came or went; with NULL, only the
     * latter. Called by slow paths, decay and trims, with at most the remote drain lock held. */
    void (*publish)(const struct kmem_cache *cache);

    /* ---- set by preload/control.c when a record is opened; cleared as `publish` is ---- */

    /* Do what a client asks for in the control area of the record (sheaf/control.h). Returns false if a request is
     * left that this thread cannot do now. Called where slow paths look at the clock, and by the helper thread, with
     * no lock held. */
    bool (*poll_control)(void);

    /* The futex by which clients wake the helper thread, or NULL if this process has no record of its own. Any
     * context. */
    uint32_t *(*control_bell)(void);

    /* Tell clients whether there is a thread that waits for that futex. Any context. */
    void (*control_waits)(bool waits);

    /* ---- set by diagnostics/feature/debug.c when the first cache is debugged ---- */

    /* Report misuse with stacks instead of in one line. `ignored`: the program goes on afterwards. Any context. */
    void (*report)(const char *kind, const void *p, const char *what, bool ignored);

    /* A slab of a watched cache came from the region, or is about to go back. Returning false refuses the slab.
     * Called with no lock held. */
    bool (*slab_created)(struct slab_cache *cache, uint32_t slice);
    void (*slab_released)(struct slab_cache *cache, uint32_t slice);

    /* ---- set by front/malloc/deferred.c when libsheaf-rcu is loaded; without it nothing waits for grace periods
     * ---- */

    /* A slab of a typesafe-by-RCU cache, or anything, waits for a grace period. Any context. */
    void (*slab_retired)(void);
    void (*rcu_kick)(void);

    /* Wait for all deferred frees of the cache. Called by kmem_cache_destroy(), with no lock held. */
    void (*rcu_barrier_on)(struct kmem_cache *cache);

    /* Be ready to wait for grace periods; may start a thread. Called by kmem_cache_create(), with no lock held. */
    void (*rcu_start)(void);

    /* Free a large block after its grace period, with no lock held; return its size in bytes, in any context. */
    void (*rcu_free_large)(void *p);
    size_t (*rcu_large_size)(void *p);

    /* ---- set by front/malloc/malloc.c when malloc starts; NULL where only the kmem interface is used ---- */

    /* Count what malloc's classes and its large blocks hold and have allocated: sets size, live_... and alloc_count
     * of each stratum (diagnostics/profile/area.h), that of all large blocks in STRATUM_LARGE. Called with
     * LOCK_PROFILE held. */
    void (*count_strata)(struct sheaf_profile_stratum *strata);

    /* ---- set by front/malloc/large_debug.c when large blocks are debugged ---- */

    /* Check all of them, and return the number of problems that were reported. Called at exit. */
    unsigned (*validate_large)(void);

    /* ---- set by tests only ---- */

    /* The clock by which the first touch of a huge page is timed, in nanoseconds; by default the CPU time of the
     * thread. Called with the region's lock held. */
    uint64_t (*huge_clock)(void);
};

extern hidden struct hooks hooks;

#endif
