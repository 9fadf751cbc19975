/*
 * The order of locks between streams and Sheaf, with musl.
 *
 * fork() takes the lock of the list of streams after all handlers, hence after Sheaf's locks. fflush(NULL) and the
 * end of the process hold it while they wait for the lock of a stream, whose holder may be in malloc() (getline(),
 * open_memstream()) and wait for Sheaf. musl's own malloc is safe because fork() takes its locks last. Here
 * fflush(NULL) and the end of the process first take a lock of Sheaf's, which a fork takes before Sheaf's other
 * locks. Nothing else waits for anything while it holds the list.
 */
#ifndef SHEAF_PRELOAD_STREAMS_H
#define SHEAF_PRELOAD_STREAMS_H

#include "platform/os/compiler.h"

/* Before and after a fork. In the child, streams_renew() takes the place of streams_unlock(). */
extern hidden void streams_lock(void);
extern hidden void streams_unlock(void);
extern hidden void streams_renew(void);

#endif
