/* Reports of misuse of Sheaf's memory: one line on standard error, then abort(). If anything is debugged, the call
 * stack of the misuse follows, and the report goes to SHEAF_DEBUG_LOG if that is set. Any context. */
#ifndef SHEAF_CACHE_MISUSE_H
#define SHEAF_CACHE_MISUSE_H

#include "platform/os/compiler.h"

struct kmem_cache;
struct slab_report;

/* Report "sheaf: <kind> <pointer> (<what>)" and abort. `kind` is "double free of", "free of interior pointer",
 * "free of foreign pointer" or the like; `what` is the name of the cache, or the kind of memory. */
_Noreturn void misuse_report(const char *kind, const void *p, const char *what);

/* The same for misuse that can be ignored: returns if anything is debugged and SHEAF_DEBUG_ACTION=continue is
 * set. */
void misuse_warn(const char *kind, const void *p, const char *what);

/* Report what a check of an object against its slab has found. */
_Noreturn void misuse_slab(const struct kmem_cache *cache, const struct slab_report *report);

#endif
