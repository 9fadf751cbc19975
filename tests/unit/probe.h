/* What the unit tests see of the inside, in plain C types: the internal headers are C17 and Catch2 is C++. */
#ifndef SHEAF_TESTS_PROBE_H
#define SHEAF_TESTS_PROBE_H

#include "sheaf/kmem_cache.h"
#include "sheaf/malloc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct probe_census {
    uint64_t out, in_use, in_sheaves, in_barns;
    uint64_t allocs, frees, refilled, flushed;
    uint64_t in_prefilled, in_reserve, allocs_fast;
    uint64_t prefill_fast, prefill_slow, prefill_oversize, return_fast, return_slow, reserve_taken;
};

void probe_take_census(const struct kmem_cache *cache, struct probe_census *census);

/* Assert the invariants and the conservation of objects of one cache, or of all; the process must be quiet. */
void probe_check(struct kmem_cache *cache);
void probe_check_all(void);

/* The memory limit of the control group, and where its files are looked for. */
size_t probe_cgroup_limit(void);
void probe_cgroup_root(const char *root);

/* Budgets for a process of so many bytes; then back to those before. */
struct probe_budgets {
    size_t slot, rcu, kept_at_most;
};
struct probe_budgets probe_limit(size_t bytes, int chosen);

/* Let the region believe that memory of slabs which it returned was missed soon, or that none was. */
void probe_learn_to_keep(void);
void probe_forget_learned(void);

/* Take and release the lock of remote drains, as a step of decay does. */
void probe_hold_remote_drains(void);
void probe_allow_remote_drains(void);

/* Take the sheaves of all slots from outside, as trim does. */
void probe_remote_drain(struct kmem_cache *cache);

/* Size classes: how many bytes a request of n gets, and how many if it is sampled. */
uint32_t probe_class_size(size_t n);
uint32_t probe_sampled_size(size_t n);

/* The table of classes (cache/slot/spacing.def). Returns their number. */
size_t probe_classes(const uint16_t **sizes);

struct probe_figures {
    uint64_t large_slices, large_allocs, large_frees; /* of large blocks in use, and of all so far */
    uint64_t warm_bytes, warm_slab_bytes;             /* free and possibly resident: all, and of slabs alone */
    uint64_t purged_bytes, hole_bytes;                /* returned so far: slices, and free pages inside slabs */
    uint64_t region_slices, slab_bytes;               /* of the region, in use or not; and in slabs */
    uint64_t sheaf_bytes, barn_bytes;                 /* cut into sheaves so far, and held by all barns */
    int64_t budget_used;                              /* what the sheaves of all slots may hold by now */
    uint64_t remote_drains;                           /* slots whose ends were taken over so far */
};
struct probe_figures probe(void);

/* Where all bytes are, as malloc_totals() says; `large`: slices of large blocks in use. */
struct probe_totals {
    uint64_t in_use, cached, set_aside, free_in_slabs, slab_rest, slab_bytes;
    uint64_t large, span_cache, warm;
};
void probe_take_totals(struct probe_totals *totals);

/* Everything is given back, and what the region has learned to keep is forgotten. */
void probe_forget(void);

/* Whether a free that the dynamic loader calls leaves the start of the helper thread to another one. */
bool probe_helper_spares_loader(void);

/* Rounds of the helper thread, called by hand. */
unsigned probe_helper_rounds(unsigned most);

/* Objects in a slab of the cache, its slabs, and a cache without sheaves (0) from now on. */
unsigned probe_slab_objects(const struct kmem_cache *cache), probe_slabs(const struct kmem_cache *cache);
void probe_set_capacity(struct kmem_cache *cache, unsigned capacity);

/* Two steps of decay, between which the caches that are sparse have been so for long enough, or not. */
void probe_decay_sparse(bool long_enough);

/* Memory nodes: the index of an object's, a counter or gauge over all siblings of a cache, objects in outbound
 * sheaves, and a step of decay. */
enum probe_node_counter { PROBE_REMOTE_FREE, PROBE_OUTBOUND_BARN, PROBE_OUTBOUND_FLUSH, PROBE_ALLOC_NODE };
unsigned probe_node_of(const void *object);
uint64_t probe_node_counter(const struct kmem_cache *cache, enum probe_node_counter which);
unsigned probe_outbound(const struct kmem_cache *cache);
void probe_decay(void);

#ifdef __cplusplus
}
#endif

#endif
