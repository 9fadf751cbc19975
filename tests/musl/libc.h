/*
 * What the tests use that glibc has and musl lacks, as far as Sheaf brings it or it can be made from what Sheaf
 * brings. tests/musl/run includes this before each source, so that a test for glibc compiles. A case that needs more
 * of glibc is skipped there (NEEDS_GLIBC in cases.h).
 */
#ifndef SHEAF_TESTS_MUSL_H
#define SHEAF_TESTS_MUSL_H

#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Weak: the preloaded object defines them. */
extern int malloc_trim(size_t pad) __attribute__((weak));
extern void malloc_stats(void) __attribute__((weak));
extern int malloc_info(int options, FILE *f) __attribute__((weak));
extern void *pvalloc(size_t size) __attribute__((weak));

#ifndef PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP
#define PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP                                                                       \
    {                                                                                                                \
        {                                                                                                            \
            {                                                                                                        \
                PTHREAD_MUTEX_RECURSIVE                                                                              \
            }                                                                                                        \
        }                                                                                                            \
    }
#endif

/* Bytes in use, and large blocks, from what malloc_info() prints. */
struct mallinfo2 {
    size_t uordblks, hblks, hblkhd;
};

static inline size_t mallinfo_number(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    return at ? strtoul(at + strlen(name), NULL, 10) : 0;
}

static inline struct mallinfo2 mallinfo2(void)
{
    static char text[1 << 16];
    FILE *f = fmemopen(text, sizeof(text), "w");
    if (!f || !malloc_info || malloc_info(0, f) != 0 || fclose(f) != 0)
        abort();
    const char *large = strstr(text, "<total type=\"mmap\"");
    struct mallinfo2 found = {.hblks = mallinfo_number(large, "count=\""),
                              .hblkhd = mallinfo_number(large, "size=\"")};
    found.uordblks = found.hblkhd;
    for (const char *c = text; (c = strstr(c, "<cache ")); c++)
        found.uordblks += mallinfo_number(c, "size=\"") * mallinfo_number(c, "in_use=\"");
    return found;
}
#define mallinfo mallinfo2

#endif
