/* What happens at the first allocation: the record, fork handlers. */
#define _GNU_SOURCE
#include "cache/kmem_cache.h"
#include "malloc/malloc.h"
#include "preload/record.h"

#include <dlfcn.h>
#include <malloc.h>
#include <stdlib.h>
#include <unistd.h>

/* glibc's, in libc_nonshared.a under the name pthread_atfork; the handle makes it stay with this object. */
extern int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *handle);
extern void *__dso_handle;

static void fork_child(void)
{
    cache_fork_child();
    record_fork_child();
}

/*
 * _Fork runs no handlers, but its child may call malloc all the same if the locks are sane. Looked up when used: it
 * is rare, and the look-up costs more than all else at start.
 */
sheaf_export pid_t _Fork(void)
{
    static pid_t (*real)(void);
    if (!real) {
        union {
            void *symbol;
            pid_t (*call)(void);
        } found = {.symbol = dlsym(RTLD_NEXT, "_Fork")};
        real = found.symbol ? found.call : fork;
    }
    cache_fork_prepare();
    pid_t pid = real();
    if (pid == 0)
        fork_child();
    else
        cache_fork_parent();
    return pid;
}

static void print_stats(void)
{
    malloc_stats();
}

/*
 * At the first allocation, not at load: a program that never allocates then does not even touch our code (70 KiB
 * resident for /bin/true). Such a program has no record either.
 */
void sheaf_started(void)
{
    __register_atfork(cache_fork_prepare, cache_fork_parent, fork_child, &__dso_handle);
    if (sheaf_config.record[0]) {
        record_start();
        atexit(record_end);
    }
    if (sheaf_config.stats)
        atexit(print_stats);
}
