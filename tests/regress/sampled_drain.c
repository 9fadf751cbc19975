/* Samples where a remote drain holds the ends of a slot: the slow path serves every request then, and draws as it
 * does elsewhere. Includes internal headers. */
#include "../cases.h"
#include "class.h"
#include "cache/ends.h"
#include "platform/config/config.h"
#include "diagnostics/profile/strata.h"

enum { SIZE = 64, RATE = 4096, REQUESTS = 20000 };

void sheaf_configure(struct sheaf_config *config)
{
    config->profile = RATE;
    config->profile_cost = 0;
}

CASE(held_ends)
{
    struct kmem_cache *cache = class_of_size(SIZE);
    const struct stratum_samples *samples = &strata_samples[cache->home - CACHE_FIRST];
    unsigned slots = slot_top < 64 ? slot_top : 64;
    uint64_t words[64];
    for (unsigned slot = 0; slot < slots; slot++) {
        uint64_t *top = &slot_words(slot, word_id(cache->number))->top;
        words[slot] = *top;
        __atomic_store_n(top, top_of((struct end){END_CLAIMED}, (struct end){END_CLAIMED}), __ATOMIC_SEQ_CST);
    }
    uint64_t before = samples->taken;
    for (unsigned i = 0; i < REQUESTS; i++)
        must(sheaf_malloc(SIZE));
    uint64_t taken = samples->taken - before; /* 312 are expected, and their deviation is 18 */
    must(taken > 200 && taken < 430);
    for (unsigned slot = 0; slot < slots; slot++)
        __atomic_store_n(&slot_words(slot, word_id(cache->number))->top, words[slot], __ATOMIC_SEQ_CST);
}
