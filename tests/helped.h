/* Whether the helper thread runs without an option: before glibc 2.32 libc does not tell whether there is one thread.
 */
#ifndef SHEAF_TESTS_HELPED_H
#define SHEAF_TESTS_HELPED_H

#include <stdbool.h>
#ifdef __GLIBC__
#include <gnu/libc-version.h>
#include <string.h>
#endif

static bool helper_by_default(void)
{
#ifdef __GLIBC__
    return strverscmp(gnu_get_libc_version(), "2.32") >= 0;
#else
    return true;
#endif
}
#endif
