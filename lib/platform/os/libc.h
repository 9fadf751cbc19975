/*
 * Functions that glibc 2.31 lacks, or keeps in libpthread and libdl, which a program need not load.
 *
 * The preloaded object refers to them weakly and does without those that are missing, so that it loads with
 * glibc 2.31 and later; preload/libc.txt says which symbols it may need. The libraries that programs link are built
 * for one libc and refer to them as usual.
 */
#ifndef SHEAF_OS_LIBC_H
#define SHEAF_OS_LIBC_H

#ifdef SHEAF_WEAK_LIBC
#include <dlfcn.h>
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

#endif
