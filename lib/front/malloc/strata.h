/* What malloc's classes and its large blocks hold, for profiles. */
#ifndef SHEAF_MALLOC_STRATA_H
#define SHEAF_MALLOC_STRATA_H

#include "sheaf/profile.h"

/* See hooks.count_strata. */
void malloc_count_strata(struct sheaf_profile_stratum *strata);

#endif
