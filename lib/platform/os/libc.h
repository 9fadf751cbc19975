/*
 * Differences of C libraries: functions that glibc 2.17 lacks, or keeps in libpthread and libdl, which a program need
 * not load; functions that its older headers do not declare; and GNU functions that musl does not have or
 * declare.
 *
 * The preloaded object refers weakly to what a version of glibc may lack and does without those that are missing, so
 * that it loads with glibc 2.17 and later; lib/libc.txt says which symbols it may need. The libraries that
 * programs link are built for one libc and refer to them as usual, except in a portable build.
 */
#ifndef SHEAF_OS_LIBC_H
#define SHEAF_OS_LIBC_H

#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <dlfcn.h>
#include <sys/auxv.h>

#ifdef __GLIBC__
#if !__GLIBC_PREREQ(2, 32)
const char *strerrordesc_np(int error);
#endif
#endif

#ifdef SHEAF_WEAK_LIBC
#include <pthread.h>
#include <string.h>
#pragma weak dladdr                    /* libdl before 2.34 */
#pragma weak dlsym                     /* libdl before 2.34 */
#pragma weak pthread_atfork            /* from 2.34 on, on x86-64 */
#pragma weak pthread_attr_setstacksize /* libpthread before 2.34 */
#pragma weak pthread_create            /* libpthread before 2.34 */
#pragma weak pthread_key_create        /* libpthread before 2.34 */
#pragma weak pthread_setspecific       /* libpthread before 2.34 */
#pragma weak strerrordesc_np           /* 2.32 */
#define libc_has(function) (&(function) != NULL)
#else
#define libc_has(function) true
#endif

#ifdef __GLIBC__

extern __typeof__(_r_debug) _r_debug __attribute__((weak)); // NOLINT(readability-redundant-declaration): weak
static inline const struct r_debug *libc_objects(void)
{
    return &_r_debug;
}

/* Whether that object is the program. */
static inline bool libc_is_program(const struct link_map *map)
{
    return !map->l_name || !*map->l_name;
}

/* The path by which the program was executed; NULL if it is not known. */
static inline const char *libc_program(void)
{
    return (const char *)getauxval(AT_EXECFN);
}

#else

/* Functions that programs find by dlsym(), or declare themselves. */
void *pvalloc(size_t size);
int malloc_trim(size_t pad);
void malloc_stats(void);
int malloc_info(int options, FILE *f);

/* What debuggers look at, as musl's dynamic linker has it. */
extern struct r_debug *const _dl_debug_addr __attribute__((weak));
static inline const struct r_debug *libc_objects(void)
{
    return &_dl_debug_addr ? _dl_debug_addr : NULL;
}

/* Unlike glibc's, its list has a name for the program: what the program was called by, maybe without the path. */
static inline bool libc_is_program(const struct link_map *map)
{
    const struct r_debug *objects = libc_objects();
    return objects && map == objects->r_map;
}

/* Where the dynamic linker was executed (`ld-musl PROGRAM`), AT_EXECFN is the linker, unlike with glibc. */
static inline const char *libc_program(void)
{
    const struct r_debug *objects = libc_objects();
    if (!getauxval(AT_BASE) && objects && objects->r_map)
        return objects->r_map->l_name;
    return (const char *)getauxval(AT_EXECFN);
}

#endif

/*
 * _dl_find_object(), by which libgcc's unwinder finds the tables of an address, without a lock. glibc has it
 * from 2.35 on; the preloaded object defines a substitute (preload/libc.c), and for musl objects.c defines it.
 */
#ifndef DLFO_STRUCT_HAS_EH_DBASE
struct dl_find_object {
    unsigned long long dlfo_flags;
    void *dlfo_map_start, *dlfo_map_end;
    struct link_map *dlfo_link_map;
    void *dlfo_eh_frame;
    unsigned long long reserved[7];
};
#ifdef __GLIBC__
extern int _dl_find_object(void *pc, struct dl_find_object *result);
#else
extern int _dl_find_object(void *pc, struct dl_find_object *result) __attribute__((visibility("hidden")));
#endif
#endif

#ifdef __GLIBC__
#pragma weak _dl_find_object
#define libc_has_find_object() (&_dl_find_object != NULL)
#else
#define libc_has_find_object() true
#endif

#endif
