/*
 * Hardening (SHEAF_HARDEN), for all caches of the process. It is set once, before the first allocation. The words
 * are implemented in different layers:
 *
 *     random                  memory/slab/shuffle.h: the order of fresh objects
 *     check                   diagnostics/feature/attach.c: no sheaves, so that each free reaches the slab's bits at
 * once zero-free, zero-alloc   here, as an instrument of the caches quarantine diagnostics/feature/quarantine.h, in
 * the same instrument; large blocks: front/malloc/large.c guard                   memory/region/guard.h: closed
 * memory between groups of slabs; front/malloc/guarded.h: closed memory around large blocks sample
 * diagnostics/feature/guarded_pool.h: some allocations on pages of their own
 */
#ifndef SHEAF_FEATURE_HARDEN_H
#define SHEAF_FEATURE_HARDEN_H

#include "platform/config/config.h"

struct kmem_cache;

/* Whether caches need the instrument, which calls the two functions below for each object. */
static inline bool harden_objects(void)
{
    const struct harden_config *on = &sheaf_config.harden;
    return on->zero_free || on->zero_alloc || on->quarantine;
}

/* Whether the contents of the cache's free objects must stay as they are. */
bool harden_keeps(const struct kmem_cache *cache);

/* Called for each raw object when it is allocated and when it is freed. harden_free() returns the object, which is
 * then freed, or NULL if it waits in quarantine. A double free that is found is reported. */
void harden_alloc(const struct kmem_cache *cache, void *object);
void *harden_free(struct kmem_cache *cache, void *object);

#endif
