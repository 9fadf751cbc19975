/*
 * dlopen() and dlmopen() without RTLD_DEEPBIND. A library that is opened with the flag calls libc's free(), but the
 * memory that it gets from the program and from libc was allocated by Sheaf.
 *
 * The entries are assembly that jumps to libc's functions, so that the return address stays the caller's: libc uses
 * it to find the calling object, whose $ORIGIN, RUNPATH and namespace decide where the library is searched. libc's
 * functions are looked up at the first call, so that programs that never call dlopen() do not pay for it.
 */
#define _GNU_SOURCE
#include "platform/config/config.h"
#include "platform/arch/arch.h"
#include "platform/os/objects.h"
#include "front/malloc/malloc.h"
#include "preload/libc.h"
#include "preload/names.h"

#include <dlfcn.h>

#ifdef __GLIBC__

/* libc's functions, NULL before the first call, and the mask of the flags that are passed on to them. */
hidden void *dlopen_next, *dlmopen_next;
hidden int dlopen_flags;
void *dlopen_next, *dlmopen_next;
int dlopen_flags;

/* Called instead of a function that libc does not have. */
static void *no_function(void)
{
    return NULL;
}

/* Looks libc's functions up and reads the option. Threads that race here write the same values. */
hidden void dlopen_find(void);
__attribute__((used)) void dlopen_find(void)
{
    malloc_init(); /* reads the options */
    void *one = libc_symbol(RTLD_NEXT, "dlopen"), *other = libc_symbol(RTLD_NEXT, "dlmopen");
    union {
        void *(*call)(void);
        void *symbol;
    } none = {.call = no_function};
    /* Where Sheaf steps aside, no library gets memory of Sheaf. */
    write_once(dlopen_flags, sheaf_config.deepbind || !names_ours() ? ~0 : ~RTLD_DEEPBIND);
    __atomic_store_n(&dlmopen_next, other ? other : none.symbol, __ATOMIC_RELEASE);
    __atomic_store_n(&dlopen_next, one ? one : none.symbol, __ATOMIC_RELEASE);
}

_Static_assert(LM_ID_BASE == 0, "as below");

/* libc's functions are used; a library that is opened with RTLD_DEEPBIND uses libc's free(). */
#if __has_include(ARCH_HEADER(dlopen.h))
#include ARCH_HEADER(dlopen.h)
#endif

#else

/*
 * musl knows no RTLD_DEEPBIND, and does not search by the calling object. The stacks that Sheaf walks need a table of
 * the loaded objects.
 */
sheaf_export void *dlopen(const char *file, int mode)
{
    objects_prepare();
    __typeof__(dlopen) *next = next_or("dlopen", void *(const char *, int), NULL);
    void *library = next ? next(file, mode) : NULL;
    if (library && (mode & RTLD_NOLOAD) == 0)
        objects_update();
    return library;
}

#endif
