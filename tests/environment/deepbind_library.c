/* Opened by deepbind.c. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

const char *deepbind_origin(void);
const char *deepbind_origin_seen(void);
void deepbind_free(void *p);
void *deepbind_malloc(size_t size);
void *deepbind_open(const char *name);
uintptr_t deepbind_allocator(void);

/* The program has a function of this name as well. */
const char *deepbind_origin(void)
{
    return "library";
}

/* With RTLD_DEEPBIND the library's own function is called, otherwise the program's. */
const char *deepbind_origin_seen(void)
{
    return deepbind_origin();
}

void deepbind_free(void *p)
{
    free(p);
}

void *deepbind_malloc(size_t size)
{
    return malloc(size);
}

/* Searches the directories in this object's RUNPATH. */
void *deepbind_open(const char *name)
{
    return dlopen(name, RTLD_NOW);
}

uintptr_t deepbind_allocator(void)
{
    return (uintptr_t)malloc;
}
