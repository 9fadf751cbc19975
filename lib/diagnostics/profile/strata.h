/*
 * The strata of the area: what each size class and the large blocks hold in all, counted and not estimated
 * (sheaf/profile.h). Counting reads the counters of all slots, so it is done when the samples say that much has
 * changed, and otherwise 16 times a second. All functions need LOCK_PROFILE.
 */
#ifndef SHEAF_PROFILE_STRATA_H
#define SHEAF_PROFILE_STRATA_H

#include "diagnostics/profile/area.h"

/* What is known of strata between two counts: live samples, and those since sampling began. */
struct stratum_samples {
    uint64_t live, taken; /* numbers */
    uint64_t room;        /* bytes that the live ones take up */
};
extern hidden struct stratum_samples strata_samples[STRATA];

/* The first count: what is live already. `at` is the table in the private copy. */
void strata_start(struct sheaf_profile_stratum *at);

/* Count, and note the peak. `now` is in milliseconds of the area. */
void strata_count(struct sheaf_profile *header, struct sheaf_profile_stratum *at, uint32_t now);

/* In the child of a fork: allocations count from zero. */
void strata_fork_child(void);

#endif
