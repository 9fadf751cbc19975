/* Files of /proc, and how much the process has mapped and resident. Allocates nothing; any thread or handler may use
 * it. */
#ifndef SHEAF_TESTS_PROC_H
#define SHEAF_TESTS_PROC_H

#include "must.h"

#include <fcntl.h>

/* Reads the file as a string. What does not fit is left out. */
static inline void proc_read(const char *path, char *text, size_t size)
{
    size_t length = 0;
    ssize_t got;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    must(fd >= 0);
    while ((got = read(fd, text + length, size - 1 - length)) > 0)
        length += (size_t)got;
    close(fd);
    text[length] = 0;
}

/* The number behind a name such as "VmLck:" in a file of at most 8 KiB. */
static inline size_t proc_number(const char *path, const char *name)
{
    char text[8192];
    proc_read(path, text, sizeof(text));
    const char *at = strstr(text, name);
    must(at);
    return strtoul(at + strlen(name), NULL, 10);
}

static inline void statm_read(size_t *mapped, size_t *resident)
{
    char text[128], *second;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    proc_read("/proc/self/statm", text, sizeof(text));
    *mapped = strtoul(text, &second, 10) * page;
    *resident = strtoul(second, NULL, 10) * page;
}

static inline size_t address_space_bytes(void)
{
    size_t mapped, resident;
    statm_read(&mapped, &resident);
    return mapped;
}

static inline size_t resident_bytes(void)
{
    size_t mapped, resident;
    statm_read(&mapped, &resident);
    return resident;
}

#endif
