/* What happens at the first allocation: the record, messages at exit. */
#define _GNU_SOURCE
#include "diagnostics/feature/fail.h"
#include "diagnostics/feature/debug.h"
#include "cache/kmem_cache.h"
#include "diagnostics/leak/leak.h"
#include "front/malloc/fault.h"
#include "front/malloc/malloc.h"
#include "platform/os/hooks.h"
#include "platform/os/libc.h"
#include "platform/os/objects.h"
#include "platform/os/stack.h"
#include "platform/os/syscall.h"
#include "preload/libc.h"
#include "preload/options.h"
#include "preload/profile.h"
#include "preload/record.h"
#include "preload/start.h"
#include "preload/vfork.h"
#include "process/helper.h"

#include <fcntl.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

/*
 * The handle of this object, which the compiler's start files would define; libc's atexit and atfork record it.
 * This object is never unloaded before the program ends.
 */
extern hidden void *__dso_handle;
void *__dso_handle = &__dso_handle;

/*
 * Some programs close standard error in their own atexit handlers, which run before ours. System calls, because
 * headers make fcntl() a function of glibc 2.28 (lib/libc.txt).
 */
static int error_output = -1;

static void keep_error_output(void)
{
    enum { HIGH = 300, LOWEST = 3 }; /* numbers that programs use, and look at, are lower */
    if (error_output < 0)
        error_output = (int)sys_call3(SYS_fcntl, STDERR_FILENO, F_DUPFD_CLOEXEC, HIGH);
    if (error_output < 0)
        error_output = (int)sys_call3(SYS_fcntl, STDERR_FILENO, F_DUPFD_CLOEXEC, LOWEST);
}

static void reopen_error_output(void)
{
    if (sys_call3(SYS_fcntl, STDERR_FILENO, F_GETFD, 0) < 0 && error_output >= 0)
        dup2(error_output, STDERR_FILENO);
}

static void report_at_exit(void)
{
    reopen_error_output();
    if (sheaf_config.stats)
        malloc_stats();
    if (sheaf_config.validate || sheaf_config.leaks == LEAKS_LIVE)
        debug_at_exit();
    if (sheaf_config.leaks == LEAKS_LOST)
        leak_report();
    options_at_exit(&sheaf_config, environ, debug_on());
    if (sheaf_config.fail)
        fail_report();
}

/* In most programs the environment has no options: then options_read() and its tables stay untouched. */
static void read_environment(struct sheaf_config *config)
{
    if (!environ || getauxval(AT_SECURE))
        return;
    char **e = environ;
    while (*e && strncmp(*e, "SHEAF_", 6) != 0)
        e++;
    if (unlikely(*e != NULL))
        options_read(config, e);
}

#ifdef SHEAF_STATIC
static bool libc_ready;

__attribute__((constructor)) static void libc_begins(void)
{
    libc_ready = true;
    atomic_store(&stack_state, STACK_FIRST);
#ifndef __GLIBC__
    malloc_init(); /* before there is a second thread: pthread_create() does not allocate */
#endif
}

__attribute__((destructor)) static void libc_ends(void)
{
    atomic_store(&stack_state, STACK_NONE);
}
#endif

void sheaf_configure(struct sheaf_config *config)
{
    static early_data bool done;
    if (done)
        return;
    done = true;
#define OPTION_PRELOADED(name, field, default_) config->field = default_;
#include "platform/config/options.def"
    read_environment(config);
    if (config->leaks == LEAKS_LOST) { /* it blocks all signals, and so the scan could not stop it */
        config->helper = HELPER_OFF;
        helper_impossible = true;
    }
#ifdef SHEAF_STATIC
    /* libc frees thread-local data while it holds a lock that pthread_create() takes. A preloaded object recognises
     * those calls because they come from the dynamic linker (helper_start()). */
    config->helper = HELPER_OFF;
    helper_impossible = true;
    atomic_store(&stack_state, libc_ready ? STACK_FIRST : STACK_NONE);
#endif
}

/*
 * Runs at the first allocation, not at load, so that a program that never allocates does not touch our code. Such
 * a program has no record either.
 */
void sheaf_started(void)
{
    atfork_register();
#ifndef SHEAF_STATIC
    hooks.thread_create = libc_thread_create;
#endif
    if (sheaf_config.harden.sample || sheaf_config.harden.guard || sheaf_config.harden.quarantine)
        fault_start();
#ifndef __GLIBC__
    if (debug_on() || sheaf_config.profile || sheaf_config.harden.sample)
        objects_prepare(); /* later, a signal handler might be the first to walk a stack */
#endif
    if (sheaf_config.record) {
        if (sheaf_config.profile)
            record_extend_for_profile();
        record_start();
        profile_record_start();
        helper_at_once();
        atexit(record_end);
    }
    if (sheaf_config.stats || sheaf_config.validate || sheaf_config.leaks || sheaf_config.debug_log ||
        sheaf_config.debug_go_on || sheaf_config.fail) {
        keep_error_output();
        atexit(report_at_exit);
    }
}
