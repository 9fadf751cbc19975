/* _Fork(). Not in the static library, where this definition would replace libc's, which it needs. */
#define _GNU_SOURCE
#include "preload/libc.h"
#include "preload/names.h"
#include "preload/start.h"
#include "process/fork.h"

#include <dlfcn.h>
#include <unistd.h>

/*
 * _Fork runs no handlers, but its child may still call malloc if the locks are in order. The real function is
 * looked up on first use, because it is rarely needed and the look-up costs more than everything else at the
 * start.
 */
sheaf_export pid_t _Fork(void)
{
    static pid_t (*real)(void);
    if (!real) {
        union {
            void *symbol;
            pid_t (*call)(void);
        } found = {.symbol = libc_symbol(RTLD_NEXT, "_Fork")};
        real = found.symbol ? found.call : fork;
    }
    if (!names_ours())
        return real();
    cache_fork_prepare();
    pid_t pid = real();
    if (pid == 0)
        start_fork_child();
    else
        cache_fork_parent();
    return pid;
}
