#include "diagnostics/profile/strata.h"
#include "platform/os/hooks.h"

struct stratum_samples strata_samples[STRATA];
static uint64_t allocs_before[STRATA]; /* those before sampling began */

static void count_all(struct sheaf_profile_stratum *at)
{
    if (likely(hooks.count_strata != NULL))
        hooks.count_strata(at);
}

/* Objects in the caches of sampled objects are none of their classes', and are counted by their samples. */
static void count_now(struct sheaf_profile_stratum *at)
{
    count_all(at);
    for (unsigned i = 0; i < STRATUM_LARGE; i++) {
        at[i].live_count += strata_samples[i].live;
        at[i].live_bytes = at[i].live_count * at[i].size;
        at[i].alloc_count = at[i].alloc_count - allocs_before[i] + strata_samples[i].taken;
        at[i].alloc_bytes = at[i].alloc_count * at[i].size;
    }
    struct sheaf_profile_stratum *large = &at[STRATUM_LARGE], *always = &at[STRATUM_ALWAYS];
    const struct stratum_samples *sampled = &strata_samples[STRATUM_ALWAYS];
    always->live_count = sampled->live;
    always->live_bytes = sampled->room;
    large->live_count = large->live_count > sampled->live ? large->live_count - sampled->live : 0;
    large->live_bytes = large->live_bytes > sampled->room ? large->live_bytes - sampled->room : 0;
}

void strata_start(struct sheaf_profile_stratum *at)
{
    struct sheaf_profile_stratum now[STRATA] = {0};
    count_all(now);
    for (unsigned i = 0; i < STRATA; i++) {
        if (!at[i].before_count && !strata_samples[i].taken)
            allocs_before[i] = now[i].alloc_count;
        at[i].size = now[i].size;
    }
    count_now(at);
    for (unsigned i = 0; i < STRATA; i++) {
        at[i].before_count = at[i].live_count > strata_samples[i].live ? at[i].live_count : 0;
        at[i].before_bytes = at[i].before_count ? at[i].live_bytes : 0;
    }
}

void strata_count(struct sheaf_profile *header, struct sheaf_profile_stratum *at, uint32_t now)
{
    uint64_t bytes = 0;
    count_now(at);
    for (unsigned i = 0; i < STRATA; i++)
        bytes += at[i].live_bytes;
    header->strata_ms = now;
    if (bytes <= header->peak_bytes)
        return;
    header->peak_bytes = bytes;
    header->peak_ms = now;
    header->peak_epoch++;
    for (unsigned i = 0; i < STRATA; i++) {
        at[i].peak_count = at[i].live_count;
        at[i].peak_bytes = at[i].live_bytes;
    }
}

void strata_fork_child(void)
{
    for (unsigned i = 0; i < STRATA; i++)
        allocs_before[i] = strata_samples[i].taken = 0;
}
