/* The options of the environment. */
#ifndef SHEAF_PRELOAD_OPTIONS_H
#define SHEAF_PRELOAD_OPTIONS_H

#include "platform/config/config.h"

/*
 * Set the options of an environment (NULL-terminated, as environ). Values that cannot be used, unknown options and
 * options without effect are reported on standard error, in one line each. For the time before the first allocation.
 */
void options_read(struct sheaf_config *config, char *const *environment);

/* Report the options that had no effect because nothing was debugged. */
void options_at_exit(const struct sheaf_config *config, char *const *environment, bool debugged);

#endif
