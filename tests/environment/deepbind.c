/*
 * Libraries that are opened with RTLD_DEEPBIND. The preloaded object clears the flag, unless SHEAF_DEEPBIND is 1, and
 * leaves everything else of dlopen() as it is.
 */
#define _GNU_SOURCE
#include "../cases.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

const char *deepbind_origin(void);

/* The library has a function of this name as well. */
const char *deepbind_origin(void)
{
    return "program";
}

static const char *library;

static bool passed_on(void)
{
    const char *option = getenv("SHEAF_DEEPBIND");
    return option && *option == '1';
}

static void *open_deep(void)
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_DEEPBIND);
    must(handle);
    return handle;
}

/* A pointer to a function of the library, of any type. */
#define FUNCTION(handle, name, type, arguments)                                                                      \
    type(*name) arguments;                                                                                           \
    *(void **)(&name) = dlsym(handle, #name);                                                                        \
    must(name)

CASE(flag_is_cleared_unless_the_option_is_set)
{
    void *handle = open_deep();
    FUNCTION(handle, deepbind_origin_seen, const char *, (void));
    must(!strcmp(deepbind_origin_seen(), passed_on() ? "library" : "program"));
}

CASE(main_namespace_is_treated_alike)
{
    void *handle = dlmopen(LM_ID_BASE, library, RTLD_NOW | RTLD_DEEPBIND);
    must(handle);
    FUNCTION(handle, deepbind_origin_seen, const char *, (void));
    must(!strcmp(deepbind_origin_seen(), passed_on() ? "library" : "program"));
}

CASE(library_frees_what_others_allocated)
{
    if (passed_on())
        _exit(CASE_SKIPPED);
    void *handle = open_deep();
    FUNCTION(handle, deepbind_free, void, (void *));
    FUNCTION(handle, deepbind_malloc, void *, (size_t));
    for (size_t size = 1; size < 1 << 20; size *= 3) {
        deepbind_free(malloc(size));
        free(deepbind_malloc(size));
    }
    deepbind_free(strdup("from libc"));
    deepbind_free(realpath("/", NULL));
}

/* A library in another namespace has a libc, and thus a malloc, of its own. */
CASE(other_namespaces_keep_their_malloc)
{
    void *handle = dlmopen(LM_ID_NEWLM, library, RTLD_NOW | RTLD_DEEPBIND);
    if (!handle)
        _exit(CASE_SKIPPED);
    FUNCTION(handle, deepbind_allocator, uintptr_t, (void));
    FUNCTION(handle, deepbind_malloc, void *, (size_t));
    FUNCTION(handle, deepbind_free, void, (void *));
    must(deepbind_allocator() != (uintptr_t)malloc);
    deepbind_free(deepbind_malloc(100));
}

static void joined(char *path, const char *directory, const char *name)
{
    must(snprintf(path, PATH_MAX, "%s/%s", directory, name) < PATH_MAX);
}

/* The library's RUNPATH is $ORIGIN/below, and the program has none. */
CASE(names_are_searched_from_the_calling_object)
{
    char directory[] = "/tmp/deepbind.XXXXXX", below[PATH_MAX], upper[PATH_MAX], lower[PATH_MAX];
    must(mkdtemp(directory));
    joined(below, directory, "below");
    joined(upper, directory, "libupper.so");
    joined(lower, below, "liblower-of-sheaf.so");
    must(mkdir(below, 0700) == 0 && symlink(library, upper) == 0 && symlink(getenv("MODULE"), lower) == 0);
    must(!dlopen("liblower-of-sheaf.so", RTLD_NOW));
    void *handle = dlopen(upper, RTLD_NOW | RTLD_DEEPBIND);
    must(handle);
    FUNCTION(handle, deepbind_open, void *, (const char *));
    void *found = deepbind_open("liblower-of-sheaf.so");
    must(unlink(lower) == 0 && unlink(upper) == 0 && rmdir(below) == 0 && rmdir(directory) == 0);
    must(found);
}

CASE(errors_are_libc_s)
{
    must(!dlopen("/no/such/library.so", RTLD_NOW | RTLD_DEEPBIND));
    const char *error = dlerror();
    must(error && strstr(error, "/no/such/library.so"));
    must(dlopen(NULL, RTLD_NOW));
    must(!dlmopen(LM_ID_BASE, "/no/such/library.so", RTLD_NOW | RTLD_DEEPBIND));
    must(!dlopen(library, 0)); /* neither RTLD_LAZY nor RTLD_NOW */
}

static pthread_barrier_t start;

static void *open_at_once(void *unused)
{
    (void)unused;
    pthread_barrier_wait(&start);
    return open_deep();
}

CASE(first_calls_of_several_threads)
{
    pthread_t threads[8];
    void *handles[8];
    pthread_barrier_init(&start, NULL, 8);
    for (int i = 0; i < 8; i++)
        must(pthread_create(&threads[i], NULL, open_at_once, NULL) == 0);
    for (int i = 0; i < 8; i++)
        must(pthread_join(threads[i], &handles[i]) == 0 && handles[i] == handles[0]);
    flag_is_cleared_unless_the_option_is_set();
}

BEFORE_CASES(argv)
{
    library = getenv("LIBRARY");
    must(library && getenv("MODULE"));
}
