/* Reports of what a program did wrong with our memory: one line on standard error, then abort(). Where anything is
 * debugged, the calls that led there follow, and all goes to where the other reports go. */
#ifndef SHEAF_CACHE_MISUSE_H
#define SHEAF_CACHE_MISUSE_H

#include "os/compiler.h"

struct kmem_cache;
struct slab_report;

/* "sheaf: <kind> <pointer> (<what>)", the kind being one of "double free of", "free of interior pointer", "free of
 * foreign pointer" ...; `what` names the cache, or the sort of memory. */
_Noreturn void misuse_report(const char *kind, const void *p, const char *what);

/* The same where the misuse can be ignored: returns when debugging is to go on. */
void misuse_tell(const char *kind, const void *p, const char *what);

/* What a flush found in a slab. */
_Noreturn void misuse_slab(const struct kmem_cache *cache, const struct slab_report *report);

#endif
