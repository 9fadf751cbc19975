/*
 * Hardening by option (SHEAF_HARDEN): what is on, for all caches of the process. Set once, before the first
 * allocation. The parts are where they belong:
 *     random      slab/shuffle.h      the order of fresh objects
 *     check       no sheaves, so that each free reaches the slab's bits at once
 *     zero-free, zero-alloc, quarantine   here and feature/quarantine.h, in the caches' detour
 *     guard       region/guard.h      closed units between groups of slabs and round large blocks
 *     sample      feature/sample.h      some allocations on pages of their own
 */
#ifndef SHEAF_FEATURE_HARDEN_H
#define SHEAF_FEATURE_HARDEN_H

#include "config/config.h"

struct kmem_cache;

/* Whether objects of the caches are handled one by one, by the two below. */
static inline bool harden_objects(void)
{
    const struct harden_config *on = &sheaf_config.harden;
    return on->zero_free || on->zero_alloc || on->quarantine;
}

/* Whether the contents of the cache's free objects must stay as they are. */
bool harden_keeps(const struct kmem_cache *cache);

/* A raw object on its way to the user, and back. The second gives the object that is to be free now, or NULL. */
void harden_alloc(const struct kmem_cache *cache, void *object);
void *harden_free(struct kmem_cache *cache, void *object);

#endif
